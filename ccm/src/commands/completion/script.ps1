Register-ArgumentCompleter -Native -CommandName 'PROGRAM' -ScriptBlock {
    param($word, $line, $cursor)
    # The line ends behind its last word: blanks up to the cursor begin another one.
    $words = @("$line".PadRight($cursor).Substring(0, $cursor) -split '\s+')
    $words = @($words | Select-Object -Skip 1)
    # The answers are without the name of the flag.
    $flag = if ($words[-1] -match '^-[^=]*=') { $Matches[0] } else { '' }
    # Older versions pass no empty arguments.
    if ($words[-1] -eq '' -and $PSVersionTable.PSVersion -lt [version]'7.3') { $words[-1] = '""' }
    # The last line says what may follow, which PowerShell decides itself.
    PROGRAM __complete @words 2>$null | Where-Object { $_ -notmatch '^:\d$' } | ForEach-Object {
        $name, $about = $_ -split "`t", 2
        if (-not $about) { $about = $name }
        [System.Management.Automation.CompletionResult]::new("$flag$name", $name, 'ParameterValue', $about)
    }
}

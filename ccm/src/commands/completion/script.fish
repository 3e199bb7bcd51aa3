function __complete_PROGRAM
    set -l words (commandline -opc)
    set -l last (commandline -ct)
    set -l replies (PROGRAM __complete $words[2..-1] "$last" 2>/dev/null)
    # The answers are without the name of the flag.
    set -l flag (string match -r -- '^-[^=]*=' "$last")
    # The last line says what may follow: files, or not.
    if test "$replies[-1]" = ':0'
        printf "$flag%s\n" (__fish_complete_path (string replace -r -- '^-[^=]*=' '' "$last"))
        return
    end
    for reply in $replies
        string match -qr -- '^:\d$' "$reply"; or printf '%s%s\n' "$flag" "$reply"
    end
end
complete -c PROGRAM -f -a '(__complete_PROGRAM)'

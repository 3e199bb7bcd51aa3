#compdef PROGRAM
_PROGRAM() {
    local -a replies options
    local directive
    replies=("${(@f)$(PROGRAM __complete "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
    # The last line says what may follow: files, or not even a blank.
    directive=$replies[-1]
    replies[-1]=()
    # The answers are without the name of the flag.
    [[ $PREFIX == -*=* ]] && compset -P '-*='
    case $directive in
        :0) _files; return ;;
        :6) options=(-S '') ;;
    esac
    replies=("${(@)replies//:/\\:}")
    replies=("${(@)replies/$'\t'/:}")
    _describe 'PROGRAM' replies "${(@)options}"
}
compdef _PROGRAM PROGRAM

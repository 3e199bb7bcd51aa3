_PROGRAM() {
    local line=${COMP_LINE:0:COMP_POINT} words last value cut='' replies reply
    read -ra words <<<"$line"
    [[ $line == *[[:blank:]] ]] && words+=('')
    mapfile -t replies < <(PROGRAM __complete "${words[@]:1}" 2>/dev/null)
    ((${#replies[@]})) || return
    # The last line says what may follow: files, or not even a blank.
    case ${replies[-1]} in
        :0) compopt -o default ;;
        :6) compopt -o nospace ;;
    esac
    # Bash replaces only what stands behind the last = and the last colon. The answers are without the name of the flag.
    last=${words[-1]}
    value=${last#-*=}
    [[ $COMP_WORDBREAKS == *:* ]] && cut=${value%"${value##*:}"}
    COMPREPLY=()
    for reply in "${replies[@]:0:${#replies[@]}-1}"; do
        reply=${reply%%$'\t'*}
        COMPREPLY+=("${reply#"$cut"}")
    done
}
complete -F _PROGRAM PROGRAM

_covey() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" words=""
    case "$prev" in
        --method) words="@methods" ;;
        --preset) words="@presets" ;;
        *) case "${COMP_WORDS[1]}" in
@commands            *) words="@names" ;;
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _covey covey

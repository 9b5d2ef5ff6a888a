"""`covey completion`: commands, options and names completed by the shell."""

import argparse
from collections.abc import Iterator, Mapping

HEAD = """_covey() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" words=""
    case "$prev" in
        --method) words="%s" ;;
        --preset) words="%s" ;;
        *) case "${COMP_WORDS[1]}" in
"""
TAIL = """            *) words="%s" ;;
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _covey covey"""


def act(options: argparse.Namespace, parsers: Mapping[str, argparse.ArgumentParser]) -> int:
    from covey.run.config.shipped import shipped

    if options.shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    print(HEAD % (" ".join(shipped("methods")), " ".join(shipped("presets"))), end="")
    for name, parser in parsers.items():
        print(f'            {name}) words="{" ".join(_words(parser))}" ;;')
    print(TAIL % " ".join(parsers))
    return 0


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from (word for word in action.option_strings if word.startswith("--"))
        yield from (str(choice) for choice in action.choices or () if not action.option_strings)

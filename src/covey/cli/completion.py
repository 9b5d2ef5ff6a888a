"""`covey completion`: commands, options and names completed by the shell."""

import argparse
from collections.abc import Iterator
from typing import Any

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


def add(commands: Any) -> None:
    command = commands.add_parser(
        "completion",
        help="complete commands in your shell",
        description="Prints a script for the shell; add its output to ~/.bashrc or ~/.zshrc.",
        epilog="example: covey completion bash",
    )
    command.add_argument("shell", choices=("bash", "zsh"))
    command.set_defaults(act=lambda options: _print(options, commands.choices))


def _print(options: argparse.Namespace, parsers: dict[str, argparse.ArgumentParser]) -> int:
    from covey.run.config.shipped import shipped

    if options.shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    lines = [
        f'            {name}) words="{" ".join(_words(parser))}" ;;'
        for name, parser in parsers.items()
    ]
    names = " ".join(shipped("methods")), " ".join(shipped("presets"))
    print(HEAD % names + "\n".join(lines) + "\n" + TAIL % " ".join(parsers))
    return 0


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Options, sub-commands and fixed choices of one command."""
    for action in parser._actions:
        yield from (word for word in action.option_strings if word.startswith("--"))
        yield from (str(choice) for choice in action.choices or () if not action.option_strings)

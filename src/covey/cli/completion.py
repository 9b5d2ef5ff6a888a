"""`covey completion`: commands, options and names completed by the shell."""

import argparse
from collections.abc import Iterator
from typing import Any

from .arguments import add_command

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
    about = "Prints a script for the shell; add its output to ~/.bashrc or ~/.zshrc."
    text, example = "complete commands in your shell", "example: covey completion bash"
    command = add_command(commands, "completion", text, example, about)
    command.add_argument("shell", choices=("bash", "zsh"))
    command.set_defaults(act=lambda options: _print(options, commands.choices))


def _print(options: argparse.Namespace, parsers: dict[str, argparse.ArgumentParser]) -> int:
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

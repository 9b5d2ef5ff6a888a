"""`covey completion`: commands, options and names completed by the shell."""

import argparse
from collections.abc import Iterator, Mapping
from importlib import resources


def act(options: argparse.Namespace, parsers: Mapping[str, argparse.ArgumentParser]) -> int:
    from covey.run.config.shipped import shipped

    if options.shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    lines = (f'            {k}) words="{" ".join(_words(p))}" ;;\n' for k, p in parsers.items())
    texts = {"@methods": " ".join(shipped("methods")), "@presets": " ".join(shipped("presets"))}
    texts |= {"@commands": "".join(lines), "@names": " ".join(parsers)}
    script = resources.files(__package__).joinpath("completion.sh").read_text("utf-8")
    for mark, text in texts.items():
        script = script.replace(mark, text)
    print(script, end="")
    return 0


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from (word for word in action.option_strings if word.startswith("--"))
        yield from (str(choice) for choice in action.choices or () if not action.option_strings)

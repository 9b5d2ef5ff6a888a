"""Command-line arguments that several commands share."""

import argparse
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from covey.core.errors import CoveyError

TYPES = {"int": int, "float": float, "path": Path}
TRUST = "a module outside of covey that configurations may import; repeatable (or COVEY_TRUST=A,B)"


@cache
def described() -> dict[str, Any]:
    """Returns `commands.toml`: each command's help, examples and options."""
    return tomllib.loads(resources.files(__package__).joinpath("commands.toml").read_text("utf-8"))


def add(commands: Any, name: str, act: Any, about: dict[str, Any] | None = None) -> None:
    """Adds a command as it is described, by default in `commands.toml`; `act` carries it out."""
    about = about or described()[name]
    examples = "\n".join(f"example: {words}" for words in about["examples"])
    raw = argparse.RawDescriptionHelpFormatter if "\n" in examples else argparse.HelpFormatter
    texts = {"help": about["help"], "description": about.get("about"), "epilog": examples}
    command = commands.add_parser(name, **texts, formatter_class=raw)
    for option, how in about.get("options", {}).items():
        kind = {"type": TYPES[how["type"]]} if "type" in how else {}
        command.add_argument(option, **(how | kind))
    if printed := about.get("json"):
        command.add_argument("--json", action="store_true", help=f"print {printed} as JSON")
    if about.get("trust"):
        command.add_argument("--trust", action="append", default=[], metavar="MODULE", help=TRUST)
    command.set_defaults(act=act)


def on_cores(config: Any, options: argparse.Namespace) -> Any:
    """Returns the configuration with the workers that the command line asks for."""
    from covey.run.workers import with_workers

    if options.jobs is not None and options.jobs < 1:
        raise CoveyError(f"--jobs {options.jobs}; give at least 1")
    return with_workers(config, options.jobs or 0, options.backend or "")


def composed(
    options: argparse.Namespace, some: Sequence[str] | None = None, **more: Any
) -> dict[str, Any]:
    """Composes the configuration that options name, which all exist; loads no PyTorch.

    The options are method, preset, dataset and set, or `some` assignments in place of these, of
    which the caller checks that they have an effect; `more` are other arguments of `compose`.
    """
    from covey.data.cache import find
    from covey.run.config.compose import compose
    from covey.run.config.overrides import check_applies, options_in
    from covey.run.config.schema import Config

    given = {"dataset": options.dataset, "set": options.set if some is None else some}
    given |= {"presets": [options.preset] if options.preset else []}
    tree = compose(options.method or "", **given, **more)
    config = Config.of(tree, parts=False)
    if some is None:
        rounds = ["run.rounds"] if more.get("rounds") else []
        check_applies(tree, [*options_in(options.set), *rounds])
    find(config.data.name)
    return tree


def check_run(folder: Path) -> None:
    if not (folder / "config.toml").exists():
        why = "is no run folder: it has no config.toml; start one with covey run --out"
        raise CoveyError(f"{folder} {why}")


def page_at(out: Path) -> Path:
    """Refuses a page that would replace another file of a run."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise CoveyError(f"{out} is no name of a page; give one that ends in .html")
    return out


def reporter(options: argparse.Namespace) -> Callable[[str], None]:
    """Returns what prints lines of progress, unless the result is printed as JSON."""

    def report(line: str) -> None:
        if not options.json:
            print(line, file=sys.stderr, flush=True)

    return report

"""Command-line arguments that several commands share."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from covey.core.errors import CoveyError


def add_command(
    commands: Any, name: str, help: str, examples: str, about: str | None = None
) -> argparse.ArgumentParser:
    """Adds a command with its help, and with examples, one in each line."""
    raw = argparse.RawDescriptionHelpFormatter if "\n" in examples else argparse.HelpFormatter
    given = {"epilog": examples, "description": about, "formatter_class": raw}
    return commands.add_parser(name, help=help, **given)


def finish(command: argparse.ArgumentParser, act: Any, printed: str = "the result") -> None:
    """Adds `--json`, and sets the function that carries the command out."""
    command.add_argument("--json", action="store_true", help=f"print {printed} as JSON")
    command.set_defaults(act=act)


def add_runs(command: argparse.ArgumentParser, text: str) -> None:
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=text)


def add_dataset(command: argparse.ArgumentParser) -> None:
    text = "synthetic, a folder under COVEY_DATA, or a prepared .npz"
    command.add_argument("--dataset", help=text)


def add_trust(command: argparse.ArgumentParser) -> None:
    text = "a module outside of covey that configurations may import; repeatable"
    text += " (or COVEY_TRUST=A,B)"
    command.add_argument("--trust", action="append", default=[], metavar="MODULE", help=text)


def add_set(command: argparse.ArgumentParser, text: str) -> None:
    command.add_argument("--set", action="append", default=[], metavar="A.B=C", help=text)


def add_workers(command: argparse.ArgumentParser) -> None:
    option = command.add_argument
    option("--jobs", type=int, help="cores to use (default: all, for runs that gain from it)")
    option("--backend", choices=("processes", "ray"), help="where several workers compute")
    text = "keep the checkpoint of the finished run, with all that its clients keep"
    option("--keep-checkpoint", action="store_true", help=text)


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

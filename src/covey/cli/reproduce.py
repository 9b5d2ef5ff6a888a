"""`covey reproduce`: a paper's tables and figures, with a verdict on each of its claims."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from covey.study.papers.plan import Table


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "reproduce",
        help="run a paper's tables and judge its claims",
        description="Runs what a paper's tables and figures need, beside floors and ceilings, and judges its claims."
        " Finished runs are kept and not repeated.",
        epilog="example: covey reproduce covey demo --quick",
    )
    command.add_argument(
        "paper", nargs="?", help="such as pfedrec, or a folder of your own; none: only --docs"
    )
    command.add_argument(
        "tables", nargs="*", metavar="TABLE", help="such as table1; none: all of the paper"
    )
    command.add_argument(
        "--papers",
        type=Path,
        metavar="DIR",
        help="where the papers' plans are, if not in a checkout",
    )
    command.add_argument(
        "--quick", action="store_true", help="one seed, a tenth of the rounds; labelled so"
    )
    command.add_argument(
        "--dataset", action="append", default=[], help="only the columns of this dataset"
    )
    command.add_argument(
        "--jobs", type=int, default=1, help="runs at a time, each with one thread; also on one GPU"
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="A.B=C",
        help="of every run: engine.device=cuda",
    )
    command.add_argument(
        "--results", type=Path, default=Path("results"), help="where the records are written"
    )
    command.add_argument(
        "--work", type=Path, default=Path("runs/papers"), help="where the runs are kept"
    )
    command.add_argument(
        "--docs", type=Path, help="pages, a folder or one, whose marked tables are rendered anew"
    )
    command.add_argument(
        "--done", action="store_true", help="run nothing: show what is finished, holes for the rest"
    )
    command.add_argument(
        "--keep", action="store_true", help="run only what the stored record lacks"
    )
    command.add_argument("--json", action="store_true", help="print the records as JSON")
    command.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    from covey.core import atomic
    from covey.core.checks import positive
    from covey.core.errors import CoveyError
    from covey.study.matrix.map_page import markdown as maps
    from covey.study.matrix.terminal import markdown as matrix
    from covey.study.papers.docs import SHOWN, render
    from covey.study.papers.folder import papers
    from covey.study.papers.page import page
    from covey.study.papers.plan import Scope, tables
    from covey.study.papers.record import reproduce, store
    from covey.study.papers.terminal import terminal

    if not options.paper and not options.docs:
        raise CoveyError(f"name a paper; there are {', '.join(papers(options.papers)) or 'none'}")
    positive("reproduce", jobs=options.jobs)
    if options.paper:
        scope = Scope(options.quick, tuple(options.dataset), tuple(options.set))
        wanted = tables(options.paper, options.tables, options.papers)
        names = _datasets(wanted, scope.datasets)
        if not options.done:
            _data_is_there(names)
        say = lambda line: None if options.json else print(line, file=sys.stderr, flush=True)
        old = options.results if options.keep else None
        records = reproduce(wanted, options.work, scope, options.jobs, say, not options.done, old)
        if options.done and not any(map(_has_figures, records)):
            raise CoveyError(
                f"nothing of this has been run yet in {options.work}; leave out --done to run it"
            )
        stored = [store(made, options.results) for made in records if _has_figures(made)]
        options.work.mkdir(parents=True, exist_ok=True)
        html = options.work / f"{records[0]['paper']}.html"
        atomic.write_text(html, page(records))
        print(
            json.dumps(records) if options.json else "\n\n".join(terminal(made) for made in records)
        )
        say(
            f"records in {', '.join(map(str, stored)) or 'no file: every run failed'}; page in {html}"
        )
    if options.docs:
        render(options.docs, options.results, SHOWN | {"matrix": matrix, "maps": maps})
    return 0


def _has_figures(made: "dict[str, Any]") -> bool:
    """Where every run failed, an older record is not to be lost."""
    return any(cell["figures"] for row in made["rows"] for cell in row["cells"].values())


def _datasets(wanted: "list[Table]", only: tuple[str, ...]) -> "Sequence[str]":
    """Return the datasets to run on: those that the user named, or else all of the tables."""
    from covey.core.errors import CoveyError
    from covey.study.papers.plan import datasets

    names = datasets(wanted)
    for name in only:
        if name not in names:
            raise CoveyError(f"no column is of dataset {name!r}; there are {', '.join(names)}")
    return only or names


def _data_is_there(names: "Sequence[str]") -> None:
    """Before anything runs: a dataset that is missing, and how to get it."""
    from covey import data

    for name in names:
        data.load(name)

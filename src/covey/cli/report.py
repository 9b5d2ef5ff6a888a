"""`covey report`: one page of a run."""

import argparse
import json
from pathlib import Path

from covey.core.errors import CoveyError


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "report",
        help="write one page about a run: open it in a browser",
        description="Writes one HTML page about a run, or about the seeds of one method. It needs no network.",
        epilog="example: covey report runs/first --out report.html",
    )
    command.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run's folder; more: other seeds of it"
    )
    command.add_argument(
        "--out", type=Path, help="the page (default: report.html in the first folder)"
    )
    command.add_argument("--json", action="store_true", help="print where it is as JSON")
    command.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    from covey.core import atomic
    from covey.study.report.data import read_settings
    from covey.study.report.page import report

    out: Path = page_at(options.out or options.runs[0] / "report.html")
    settings = read_settings(options.runs)
    if len(settings) > 1 or len(settings[0].groups) > 1:
        names = " ".join(str(run) for run in options.runs)
        raise CoveyError(
            f"these are not seeds of one configuration; set them side by side: covey compare {names}"
        )
    atomic.write_text(out, report(settings[0]))
    print(json.dumps({"out": str(out)}) if options.json else f"report in {out}")
    return 0


def page_at(out: Path) -> Path:
    """No page ever takes the place of another file of a run."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise CoveyError(f"{out} is no name of a page; give one that ends in .html")
    return out

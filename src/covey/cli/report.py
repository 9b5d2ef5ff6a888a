"""`covey report`: one page of a run."""

import argparse
import json
from pathlib import Path
from typing import Any

from covey.core import CoveyError, atomic

from . import arguments


def add(commands: Any) -> None:
    about = "Writes one HTML page about a run, or about the seeds of one method."
    about += " It needs no network."
    text = "write one page about a run: open it in a browser"
    example = "example: covey report runs/first --out report.html"
    command = arguments.add_command(commands, "report", text, example, about)
    option = command.add_argument
    arguments.add_runs(command, "a run's folder; more: other seeds of it")
    option("--out", type=Path, help="the page (default: report.html in the first folder)")
    arguments.finish(command, act, "where it is")


def act(options: argparse.Namespace) -> int:
    from covey.study.report.data import read_settings

    out = arguments.page_at(options.out or options.runs[0] / "report.html")
    settings = read_settings(options.runs)
    if len(settings) > 1 or len(settings[0].groups) > 1:
        runs = " ".join(str(run) for run in options.runs)
        wrong = "these are not seeds of one configuration"
        raise CoveyError(f"{wrong}; set them side by side: covey compare {runs}")
    from covey.study.report.page import report

    atomic.write_text(out, report(settings[0]))
    print(json.dumps({"out": str(out)}) if options.json else f"report in {out}")
    return 0

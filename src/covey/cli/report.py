"""`covey report`: one page of a run."""

import argparse
import json

from covey.core import CoveyError, atomic

from . import arguments


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

"""`covey compare`: several runs side by side, in the terminal and on a page."""

import argparse
import json
from pathlib import Path

from covey.core import atomic

from . import arguments


def act(options: argparse.Namespace) -> int:
    from covey.study.report.data import read_settings

    out: Path | None = arguments.page_at(options.out) if options.out else None
    settings = read_settings(options.runs)
    from covey.study.report.page import comparison
    from covey.study.report.terminal import plain, tables

    if out:
        atomic.write_text(out, comparison(settings))
    if options.json:
        compared = [plain(setting) for setting in settings]
        print(json.dumps({"settings": compared, "out": str(out) if out else None}))
    else:
        print(tables(settings))
        print(f"page in {out}" if out else "for curves, privacy and item maps: --out compare.html")
    return 0

"""`covey compare`: several runs side by side, in the terminal and on a page."""

import argparse
import json
from pathlib import Path


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "compare",
        help="put several runs side by side",
        description="Puts runs side by side; runs of one configuration with different seeds become one row.",
        epilog="example: covey compare runs/first runs/second --out compare.html",
    )
    command.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs"
    )
    command.add_argument("--out", type=Path, help="also write a page, such as compare.html")
    command.add_argument("--json", action="store_true", help="print the table as JSON")
    command.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    from covey.core import atomic
    from covey.study.report.data import read_settings
    from covey.study.report.page import comparison
    from covey.study.report.terminal import plain, tables

    from .report import page_at

    out = page_at(options.out) if options.out else None
    settings = read_settings(options.runs)
    if out:
        atomic.write_text(out, comparison(settings))
    if options.json:
        print(
            json.dumps({"settings": [plain(s) for s in settings], "out": str(out) if out else None})
        )
    else:
        print(tables(settings))
        print(f"page in {out}" if out else "for curves, privacy and item maps: --out compare.html")
    return 0

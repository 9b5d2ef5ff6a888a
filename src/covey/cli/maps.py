"""`covey maps`: the item tables of runs as maps in two dimensions."""

import argparse
import json
from pathlib import Path
from typing import Any

from covey.core import atomic, positive

from . import arguments


def add(commands: Any) -> None:
    about = "Draws the public item tables of runs in two dimensions, with popular items and targets"
    about += " marked."
    text = "draw where runs have their items"
    example = "example: covey maps runs/first runs/second --out maps.html"
    command = arguments.add_command(commands, "maps", text, example, about)
    option = command.add_argument
    arguments.add_runs(command, "folders of finished runs on one dataset")
    option("--hot", type=int, default=100, help="how many of the most popular items are marked")
    option("--targets", default="", help="items by row or own id, such as 7,id:50: marked too")
    axes = "directions of each table, or of the first"
    option("--axes", choices=("own", "first"), default="own", help=axes)
    option("--out", type=Path, required=True, help="the page, such as maps.html")
    option("--results", type=Path, help="a .json file for the captions of the maps")
    arguments.finish(command, act, "the captions of the maps")


def act(options: argparse.Namespace) -> int:
    from covey.study.report.data import read_run

    positive("maps", hot=options.hot)
    out = arguments.page_at(options.out)
    for run in options.runs:
        read_run(run)
    from covey.study.matrix.map_page import atlas, record

    chosen = (options.hot, options.targets, options.axes)
    captions, page = atlas(options.runs, *chosen)
    atomic.write_text(out, page)
    if options.results:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        made = record(options.runs, captions, *chosen)
        atomic.write_text(options.results, json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    if options.json:
        print(json.dumps({"maps": captions, "out": str(out)}))
        return 0
    for one in captions:
        popular, everything = one["mean_cosine_popular"], one["mean_cosine_all"]
        cosines = f"mean cosine between popular items {popular:.3f}, all {everything:.3f}"
        print(f"{one['name']}: {cosines}; two directions hold {one['explained']:.0%}")
    print(f"page in {out}")
    return 0

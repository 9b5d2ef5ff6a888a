"""`covey maps`: where runs have their items, beside each other."""

import argparse
import json
from pathlib import Path


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "maps",
        help="draw where runs have their items",
        description="Draws the public item tables of runs in two dimensions, with popular items and targets marked.",
        epilog="example: covey maps runs/first runs/second --out maps.html",
    )
    command.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs on one dataset"
    )
    command.add_argument(
        "--hot", type=int, default=100, help="how many of the most popular items are marked"
    )
    command.add_argument(
        "--targets", default="", help="items by row or own id, such as 7,id:50: marked too"
    )
    command.add_argument(
        "--axes",
        choices=("own", "first"),
        default="own",
        help="directions of each table, or of the first",
    )
    command.add_argument("--out", type=Path, required=True, help="the page, such as maps.html")
    command.add_argument("--results", type=Path, help="a .json file for what is said of the maps")
    command.add_argument(
        "--json", action="store_true", help="print what is said of the maps as JSON"
    )
    command.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    from covey.core import atomic
    from covey.core.checks import positive
    from covey.study.matrix.map_page import atlas, record

    from .report import page_at

    positive("maps", hot=options.hot)
    out = page_at(options.out)
    said, page = atlas(options.runs, options.hot, options.targets, options.axes)
    atomic.write_text(out, page)
    if options.results:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        made = record(options.runs, said, options.hot, options.targets, options.axes)
        atomic.write_text(options.results, json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    if options.json:
        print(json.dumps({"maps": said, "out": str(out)}))
        return 0
    for one in said:
        cosines = (
            f"popular items {one['mean_cosine_popular']:.3f}, all {one['mean_cosine_all']:.3f}"
        )
        print(
            f"{one['name']}: mean cosine between {cosines}; two directions hold {one['explained']:.0%}"
        )
    print(f"page in {out}")
    return 0

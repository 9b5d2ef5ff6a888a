"""`covey maps`: the item tables of runs as maps in two dimensions."""

import argparse
import json

from covey.core import atomic, positive

from . import arguments


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

"""`covey report`, `covey compare` and `covey maps`: pages about finished runs."""

import argparse
import json
from pathlib import Path

from covey.core import CoveyError, atomic, positive

from . import arguments


def report(options: argparse.Namespace) -> int:
    from covey.study.report.data import read_settings

    out = arguments.page_at(options.out or options.runs[0] / "report.html")
    settings = read_settings(options.runs)
    if len(settings) > 1 or len(settings[0].groups) > 1:
        runs = " ".join(str(run) for run in options.runs)
        wrong = "these are not seeds of one configuration"
        raise CoveyError(f"{wrong}; set them side by side: covey compare {runs}")
    from covey.study.report import page

    atomic.write_text(out, page.report(settings[0]))
    print(json.dumps({"out": str(out)}) if options.json else f"report in {out}")
    return 0


def compare(options: argparse.Namespace) -> int:
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


def maps(options: argparse.Namespace) -> int:
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

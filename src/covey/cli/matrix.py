"""`covey matrix`: every attack against every defence, on any method."""

import argparse
import json
from pathlib import Path

from covey.core import CoveyError, atomic, positive

from . import arguments


def act(options: argparse.Namespace) -> int:
    from covey.run.config.shipped import read

    # Unknown names are refused before anything that takes long is imported.
    arguments.composed(options, [s for s in options.set if not s.strip().startswith("attack.")])
    for kind in ("attacks", "defences"):
        for name in getattr(options, kind).replace("+", ",").split(","):
            if name.strip() not in ("", "none"):
                read(kind, name.strip())
    from covey.study.matrix.formatting import terminal
    from covey.study.matrix.page import page
    from covey.study.matrix.plan import MatrixOptions, planned
    from covey.study.matrix.record import matrix, without_curves

    positive("matrix", jobs=options.jobs)
    if options.rounds < 0:
        raise CoveyError(f"--rounds {options.rounds}: give 1 or more")
    method = (options.method, options.dataset or "", options.preset)
    parts = (tuple(options.attacks.split(",")), tuple(options.defences.split(",")))
    scale = (options.share, options.targets, options.rounds, options.seeds)
    request = MatrixOptions(*method, *parts, *scale, tuple(options.set))
    plan = planned(request)
    say = arguments.reporter(options)
    made, items, rows = matrix(plan, options.out / "runs", options.at, options.jobs, say)
    text = json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    html = page(made, options.at, (items, rows))
    files = {options.out / "matrix.json": text, options.out / "matrix.html": html}
    if options.results:
        short = json.dumps(without_curves(made), ensure_ascii=False, allow_nan=False) + "\n"
        usual = f"matrix-{Path(request.method).stem}-{Path(plan.base.data.name).stem}.json"
        copy = options.results if options.results.suffix == ".json" else options.results / usual
        copy.parent.mkdir(parents=True, exist_ok=True)
        files[copy] = short
    for path, content in files.items():
        atomic.write_text(path, content)
    print(json.dumps(made) if options.json else terminal(made, options.at))
    say(f"in {', '.join(map(str, files))}")
    return 0

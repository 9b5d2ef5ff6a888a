"""`covey matrix`: every attack against every defence, on any method."""

import argparse
import json
from pathlib import Path
from typing import Any

from covey.core import CoveyError, atomic, positive

from . import arguments


def add(commands: Any) -> None:
    about = "Runs a method under every attack and with every defence, and shows how far the target"
    about += " is pushed and what it costs. Finished runs are kept and not repeated; a pair that"
    about += " does not fit says why."
    example = "example: covey matrix --method fedmf --rounds 2 --attacks a-ra,random --defences"
    example += " clip,median --out runs/matrix"
    text = "run attacks against defences on a method"
    command = arguments.add_command(commands, "matrix", text, example, about)
    option = command.add_argument
    option("--method", required=True, help="a shipped method, such as fedncf, or a TOML file")
    arguments.add_dataset(command)
    option("--preset", default="", help="a paper's protocol, such as ratio-full")
    names = "names (covey list %s) or TOML files, with commas"
    option("--attacks", default="a-ra,a-hum,psmu,random", help=names % "attacks")
    names = names % "defences" + "; clip+support: both"
    option("--defences", default="clip,median,trimmed,krum,hics", help=names)
    share = "attackers, as a share of the honest clients"
    option("--share", type=float, default=0.01, help=share)
    items = "items by row or own id, such as 7,id:50; cold: the least popular"
    option("--targets", default="cold", help=items)
    option("--rounds", type=int, default=0, help="as the method counts them: rounds or passes")
    option("--seeds", type=int, default=1, help="how many")
    cut = "K of the ER@K that tables show"
    option("--at", type=int, default=10, choices=(5, 10, 20), help=cut)
    option("--jobs", type=int, default=1, help="runs at a time, each with one thread")
    arguments.add_set(command, "of every run; attack.rate=1: where there is a rate")
    folder = "a folder for page, record and runs"
    option("--out", type=Path, default=Path("runs/matrix"), help=folder)
    option("--results", type=Path, help="a folder or .json file for the record, without curves")
    arguments.finish(command, act, "the record")


def act(options: argparse.Namespace) -> int:
    _check_names(options)
    from covey.study.matrix.page import page
    from covey.study.matrix.plan import MatrixOptions, planned
    from covey.study.matrix.record import without_curves
    from covey.study.matrix.run import matrix
    from covey.study.matrix.terminal import terminal

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


def _check_names(options: argparse.Namespace) -> None:
    """Refuses unknown names before anything that takes long is imported."""
    from covey.run.config.shipped import read

    arguments.composed(options, [s for s in options.set if not s.strip().startswith("attack.")])
    for kind in ("attacks", "defences"):
        for name in getattr(options, kind).replace("+", ",").split(","):
            if name.strip() not in ("", "none"):
                read(kind, name.strip())

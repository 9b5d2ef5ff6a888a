"""`covey matrix`: every attack against every defence, on any method."""

import argparse
import json
import sys
from pathlib import Path


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "matrix",
        help="run attacks against defences on a method",
        description="Runs a method under every attack and with every defence, and shows how far the target is pushed"
        " and what it costs. Finished runs are kept and not repeated; a pair that does not fit says why.",
        epilog="example: covey matrix --method fedmf --rounds 2 --attacks a-ra,random --defences clip,median"
        " --out runs/matrix",
    )
    command.add_argument(
        "--method", required=True, help="a shipped method, such as fedncf, or a TOML file"
    )
    command.add_argument(
        "--dataset", default="", help="synthetic, a folder under COVEY_DATA, or a prepared .npz"
    )
    command.add_argument("--preset", default="", help="a paper's protocol, such as ratio-full")
    command.add_argument(
        "--attacks",
        default="a-ra,a-hum,psmu,random",
        help="names (covey list attacks) or TOML files, with commas",
    )
    command.add_argument(
        "--defences",
        default="clip,median,trimmed,krum,hics",
        help="names (covey list defences) or TOML files, with commas; clip+support: both",
    )
    command.add_argument(
        "--share", type=float, default=0.01, help="attackers, as a share of the honest clients"
    )
    command.add_argument(
        "--targets",
        default="cold",
        help="items by row or own id, such as 7,id:50; cold: the least popular",
    )
    command.add_argument(
        "--rounds", type=int, default=0, help="as the method counts them: rounds or passes"
    )
    command.add_argument("--seeds", type=int, default=1, help="how many")
    command.add_argument(
        "--at", type=int, default=10, choices=(5, 10, 20), help="K of the ER@K that tables show"
    )
    command.add_argument("--jobs", type=int, default=1, help="runs at a time, each with one thread")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="A.B=C",
        help="of every run; attack.rate=1: where there is a rate",
    )
    command.add_argument(
        "--out", type=Path, default=Path("runs/matrix"), help="a folder for page, record and runs"
    )
    command.add_argument(
        "--results", type=Path, help="a folder or .json file for the record, without curves"
    )
    command.add_argument("--json", action="store_true", help="print the record as JSON")
    command.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    from covey.core import atomic
    from covey.core.checks import positive
    from covey.core.errors import CoveyError
    from covey.study.matrix.page import page
    from covey.study.matrix.plan import Request, planned
    from covey.study.matrix.record import without_curves
    from covey.study.matrix.run import matrix
    from covey.study.matrix.terminal import terminal

    positive("matrix", jobs=options.jobs)
    if options.rounds < 0:
        raise CoveyError(f"--rounds {options.rounds}: give 1 or more")
    request = Request(
        options.method,
        options.dataset,
        options.preset,
        tuple(options.attacks.split(",")),
        tuple(options.defences.split(",")),
        options.share,
        options.targets,
        options.rounds,
        options.seeds,
        tuple(options.set),
    )
    plan = planned(request)
    say = lambda line: None if options.json else print(line, file=sys.stderr, flush=True)
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

"""The `covey` command."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from covey import __version__
from covey.core.errors import CoveyError
from covey.core.trust import found_here, trusting

from . import (
    compare,
    completion,
    data,
    doctor,
    listing,
    maps,
    matrix,
    recommend,
    report,
    reproduce,
    tune,
)

# Commands that build what a configuration names.
IMPORTING = (
    "run",
    "resume",
    "report",
    "compare",
    "reproduce",
    "matrix",
    "maps",
    "tune",
    "recommend",
)


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        options = _parser().parse_args(arguments)
        with trusting(getattr(options, "trust", ())), found_here():
            return int(options.act(options) or 0)
    except CoveyError as error:
        return _say(str(error), 2)
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # whatever no part of the program foresaw: permissions, a full disk
        return _say(f"{error}; is the path right, may it be written, is there space?", 2)
    except KeyboardInterrupt:
        return _say("stopped", 130)


def _say(message: str, code: int) -> int:
    print(f"covey: {' '.join(message.split())}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, like everything else."""

    def error(self, message: str) -> NoReturn:
        raise CoveyError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="covey", description="Federated recommendation, and what it costs.")
    parser.add_argument("--version", action="version", version=f"covey {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="train and evaluate a method",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: covey run --method fedncf --rounds 3 --out runs/first\n"
        "example: covey run --method fedmf --rounds 3 --set model.dim=16 --out runs/second",
    )
    run.add_argument("config", nargs="?", help="a TOML file; or choose --method")
    run.add_argument("--method", help="a shipped method, such as fedncf")
    run.add_argument("--dataset", help="synthetic, a folder under COVEY_DATA, or a prepared .npz")
    run.add_argument("--preset", help="a paper's protocol, such as pfedrec-as-published")
    run.add_argument(
        "--rounds", type=int, help="how many: rounds, or passes over all clients, as run.unit says"
    )
    run.add_argument("--seed", type=int)
    run.add_argument(
        "--out", type=Path, help="the run's folder (default: runs/METHOD-DATASET-SEED)"
    )
    run.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="A.B=C",
        help="any option of the configuration",
    )
    _common(run, _run)
    resume = commands.add_parser(
        "resume",
        help="continue a run that was stopped or killed",
        epilog="example: covey resume runs/first",
    )
    resume.add_argument("out", type=Path)
    _common(resume, _resume)
    for command in (
        report,
        compare,
        reproduce,
        matrix,
        maps,
        tune,
        recommend,
        listing,
        data,
        doctor,
        completion,
    ):
        command.add(commands)
    for name in IMPORTING:
        what = "a module outside of covey that configurations may import; repeatable (or COVEY_TRUST=A,B)"
        commands.choices[name].add_argument(
            "--trust", action="append", default=[], metavar="MODULE", help=what
        )
    return parser


def _common(command: argparse.ArgumentParser, act: Any) -> None:
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(act=act)


def _run(options: argparse.Namespace) -> int:
    from covey.run.config.compose import checked, compose

    if not options.method and not options.config:
        raise CoveyError("name a method: covey run --method fedncf, or give a TOML file")
    tree = compose(
        options.method or "",
        file=options.config or "",
        presets=[options.preset] if options.preset else [],
        dataset=options.dataset,
        rounds=options.rounds,
        seed=options.seed,
        set=options.set,
    )
    config = checked(tree, options.set, rounds=options.rounds)
    name = f"{Path(config.tree.get('method', 'run')).stem}-{Path(config.data.name).stem}-{config.run.seed}"
    return _go(config, options.out or Path("runs") / name, options, resume=False)


def _resume(options: argparse.Namespace) -> int:
    from covey.run.config.schema import Config
    from covey.run.config.tree import parse

    result = options.out / "result.json"
    if result.exists():
        try:
            done = json.loads(result.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CoveyError(
                f"{result} is damaged ({error}); remove it and resume again"
            ) from error
        show(done, options.out, options.json)
        return 0
    if not (options.out / "config.toml").exists():
        raise CoveyError(
            f"{options.out} is no run folder: it has no config.toml; start one with covey run --out"
        )
    return _go(Config.of(parse(options.out / "config.toml")), options.out, options, resume=True)


def _go(config: Any, out: Path, options: argparse.Namespace, resume: bool) -> int:
    import torch

    from covey.core.progress import Bar
    from covey.run.loop import run

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(
            1
        )  # threads inside operations on small tensors cost more than they give
    try:
        with Bar(quiet=options.json) as bar:
            result = run(config, out, resume=resume, progress=bar.update)
    except KeyboardInterrupt:
        begun = (out / "config.toml").exists()
        return _say(
            f"stopped; go on with covey resume {out}"
            if begun
            else "stopped before anything was written",
            130,
        )
    show(result, out, options.json)
    return 0


def show(result: dict[str, Any], out: Path, as_json: bool) -> None:
    from covey.study.report.run_table import table

    print(json.dumps({**result, "out": str(out)}) if as_json else table(result, out))


if __name__ == "__main__":
    sys.exit(main())

"""The `covey` command: the parser, `covey run`, `covey resume`, and how errors are shown."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from covey import __version__
from covey.cli import (
    arguments,
    completion,
    data,
    doctor,
    listing,
    matrix,
    pages,
    recommend,
    reproduce,
    tune,
)
from covey.core import CoveyError, lock
from covey.core.trust import found_here, trusting


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command that the words of a command line name; returns the exit code."""
    try:
        _show_log()
        options = _parser().parse_args(words)
        with trusting(getattr(options, "trust", ())), found_here():
            return int(options.act(options) or 0)
    except CoveyError as error:
        return _fail(str(error), 2)
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # unforeseen ones, such as missing permissions or a full disk
        return _fail(f"{error}; is the path right, may it be written, is there space?", 2)
    except KeyboardInterrupt:
        return _fail("stopped", 130)


def _show_log() -> None:
    """Prints warnings, and with COVEY_LOG=INFO or DEBUG also the progress of long jobs."""
    level = os.environ.get("COVEY_LOG", "WARNING").upper()
    if level not in logging.getLevelNamesMapping():
        raise CoveyError(f"COVEY_LOG = {level!r} is no level; use DEBUG, INFO, WARNING or ERROR")
    if not logging.root.handlers:  # a caller from Python may have configured them
        logging.basicConfig(format="covey: %(message)s")
        logging.getLogger("covey").setLevel(level)


def _fail(message: str, code: int) -> int:
    print(f"covey: {' '.join(message.split())}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line, like any other error."""

    def error(self, message: str) -> NoReturn:
        raise CoveyError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="covey", description="Federated recommendation, and what it costs.")
    parser.add_argument("--version", action="version", version=f"covey {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    acts = {"run": _run, "resume": _resume, "report": pages.report, "compare": pages.compare}
    acts |= {"reproduce": reproduce.act, "matrix": matrix.act, "maps": pages.maps}
    acts |= {"tune": tune.act, "recommend": recommend.act, "list": listing.act}
    for name, act in acts.items():
        arguments.add(commands, name, act)
    data.add(commands)
    arguments.add(commands, "doctor", doctor.act)
    arguments.add(commands, "completion", partial(completion.act, parsers=commands.choices))
    return parser


def _run(options: argparse.Namespace) -> int:
    from covey.run.config.compose import checked

    if not options.method and not options.config:
        raise CoveyError("name a method: covey run --method fedncf, or give a TOML file")
    given = {"file": options.config or "", "rounds": options.rounds, "seed": options.seed}
    tree = arguments.composed(options, **given)
    there = {p.name for p in options.out.glob("*")} if options.out else set()
    if "config.toml" in there and lock.NAME not in there:  # `run` refuses it too, but later
        go_on = f"choose another --out, or continue with covey resume {options.out}"
        raise CoveyError(f"{options.out} holds a run already; {go_on}")
    config = arguments.on_cores(checked(tree, options.set, rounds=options.rounds), options)
    method, dataset = Path(config.tree.get("method", "run")).stem, Path(config.data.name).stem
    out = options.out or Path("runs") / f"{method}-{dataset}-{config.run.seed}"
    return _train(config, out, options, resume=False)


def _resume(options: argparse.Namespace) -> int:
    from covey.run.config.schema import Config
    from covey.run.config.tree import parse

    result = options.out / "result.json"
    if result.exists():
        try:
            done = json.loads(result.read_text(encoding="utf-8"))
        except ValueError as error:
            wrong = f"{result} is damaged ({error})"
            raise CoveyError(f"{wrong}; remove it and resume again") from error
        show(done, options.out, options.json)
        return 0
    arguments.check_run(options.out)
    config = arguments.on_cores(Config.of(parse(options.out / "config.toml")), options)
    return _train(config, options.out, options, resume=True)


def _train(config: Any, out: Path, options: argparse.Namespace, resume: bool) -> int:
    import torch

    from covey.core.progress import Bar
    from covey.run.loop import run

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # more threads slow operations on small tensors down
    try:
        with Bar(not options.json, config.evaluate.selector) as bar:
            keep: Any = "checkpoint" if options.keep_checkpoint else "small"
            result = run(config, out, resume=resume, progress=bar.update, keep=keep)
    except KeyboardInterrupt:
        if not (out / "config.toml").exists():
            return _fail("stopped before anything was written", 130)
        return _fail(f"stopped; go on with covey resume {out}", 130)
    show(result, out, options.json)
    return 0


def show(result: dict[str, Any], out: Path, as_json: bool) -> None:
    from covey.study.report.terminal import table

    print(json.dumps({**result, "out": str(out)}) if as_json else table(result, out))


if __name__ == "__main__":
    sys.exit(main())

"""A trial: some values, run with each tuning seed, and only what validation says of these runs.

A run's folder, with all that was measured on the test part, is removed before anybody could read it.
"""

import json
import math
import shutil
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from covey.core import atomic
from covey.core.errors import CoveyError
from covey.run.config.build import fill
from covey.run.config.schema import Config
from covey.run.config.tree import Tree
from covey.run.loop import run

from .space import Values


@dataclass(frozen=True)
class Run:
    """What validation says of one run, and what it cost."""

    value: float | None = None
    round: int = 0  # that validation selected
    rounds: int = 0  # that were run
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Trial:
    number: int
    values: Values
    runs: tuple[Run, ...]  # one for each seed

    @property
    def error(self) -> str:
        return next((r.error for r in self.runs if r.error), "")

    @property
    def value(self) -> float | None:
        """The mean over seeds; nothing where a run failed."""
        return (
            None
            if self.error
            else statistics.fmean(r.value for r in self.runs if r.value is not None)
        )

    def plain(self) -> Tree:
        return {
            "number": self.number,
            "values": self.values,
            "runs": [asdict(r) for r in self.runs],
        }

    @classmethod
    def of(cls, row: Tree) -> "Trial":
        return cls(row["number"], row["values"], tuple(fill(Run, r, "run") for r in row["runs"]))


def validated(config: Config, folder: Path) -> Run:
    """One run, kept under its digest: only what validation says of it."""
    kept, work = folder / f"{config.digest()}.json", folder / config.digest()
    if not kept.exists():
        atomic.write_text(kept, json.dumps(asdict(_tried(config, work))) + "\n")
    shutil.rmtree(work, ignore_errors=True)
    return fill(Run, json.loads(kept.read_text(encoding="utf-8")), kept.name)


def _tried(config: Config, work: Path) -> Run:
    """A failure is an outcome too, unless it is the machine's: a full disk counts against no setting."""
    began, cpu, reached = time.perf_counter(), time.process_time(), 0

    def progress(number: int, total: int, row: Tree) -> None:
        nonlocal reached
        reached = number

    error, selected, value = "", 0, None
    try:
        told = run(config, work, resume=(work / "config.toml").exists(), progress=progress)
        selected, value = told["round"], told["valid"][config.evaluate.selector]
    except (CoveyError, ArithmeticError, RuntimeError, ValueError) as failure:
        if isinstance(failure.__cause__, OSError):
            raise
        error = (
            f"{'' if isinstance(failure, CoveyError) else type(failure).__name__ + ': '}{failure}"
        )
    if value is not None and not math.isfinite(value):
        error, value = f"{config.evaluate.selector} on validation is {value}", None
    rounds = getattr(config.part("pooled"), "epochs", 0) if "pooled" in config.tree else reached
    spent = round(time.perf_counter() - began, 3), round(time.process_time() - cpu, 3)
    return Run(value, selected, rounds, *spent, " ".join(error.split()))

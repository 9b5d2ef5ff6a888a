"""A trial: values that are run with each tuning seed, with validation results; their journal.

A run folder also has figures of the test part, so it is removed as soon as the run has ended.
"""

import json
import math
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from covey.core import CoveyError, atomic, toml_writer
from covey.run.config.build import fill
from covey.run.config.schema import Config
from covey.run.config.tree import Tree, parse
from covey.run.loop import run

from .space import Values

STUDY, TRIALS, RUNS = "study.toml", "trials.jsonl", "runs"


@dataclass(frozen=True)
class Run:
    """The validation result of one run, and what it cost."""

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
        """The mean over seeds; None if a run failed."""
        known = [r.value for r in self.runs if r.value is not None]
        return None if self.error else statistics.fmean(known)

    def plain(self) -> Tree:
        runs = [asdict(r) for r in self.runs]
        return {"number": self.number, "values": self.values, "runs": runs}

    @classmethod
    def of(cls, row: Tree) -> "Trial":
        return cls(row["number"], row["values"], tuple(fill(Run, r, "run") for r in row["runs"]))


def validated(config: Config, folder: Path) -> Run:
    """Run a configuration and keep its validation result, in a file named after its digest."""
    kept, work = folder / f"{config.digest()}.json", folder / config.digest()
    if not kept.exists():
        atomic.write_text(kept, json.dumps(asdict(_tried(config, work))) + "\n")
    shutil.rmtree(work, ignore_errors=True)
    return fill(Run, json.loads(kept.read_text(encoding="utf-8")), kept.name)


def _tried(config: Config, work: Path) -> Run:
    """Run once; a failure is a result too, unless the machine caused it, such as by a full disk."""
    began, cpu, reached = time.perf_counter(), time.process_time(), 0

    def progress(number: int, total: int, row: Tree) -> None:
        nonlocal reached
        reached = number

    error, selected, value = "", 0, None
    try:
        result = run(config, work, resume=(work / "config.toml").exists(), progress=progress)
        selected, value = result["round"], result["valid"][config.evaluate.selector]
    except (CoveyError, ArithmeticError, RuntimeError, ValueError) as failure:
        if isinstance(failure.__cause__, OSError):
            raise
        kind = "" if isinstance(failure, CoveyError) else f"{type(failure).__name__}: "
        error = f"{kind}{failure}"
    if value is not None and not math.isfinite(value):
        error, value = f"{config.evaluate.selector} on validation is {value}", None
    rounds = getattr(config.part("pooled"), "epochs", 0) if "pooled" in config.tree else reached
    spent = round(time.perf_counter() - began, 3), round(time.process_time() - cpu, 3)
    return Run(value, selected, rounds, *spent, " ".join(error.split()))


class Journal:
    """The finished trials by number; an incomplete last line is ignored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_bytes() if path.exists() else b""
        self.end = text.rfind(b"\n") + 1
        try:
            rows = [Trial.of(json.loads(line)) for line in text[: self.end].splitlines()]
        except (ValueError, KeyError, TypeError, CoveyError) as error:
            wrong = f"{path} is damaged ({error}); remove its folder, or choose another --out"
            raise CoveyError(wrong) from error
        self.trials = {trial.number: trial for trial in rows}

    def add(self, trial: Trial) -> None:
        self.end = atomic.append(self.path, self.end, json.dumps(trial.plain()) + "\n")
        self.trials[trial.number] = trial


@contextmanager
def opened(out: Path, identity: Tree) -> Iterator[Journal]:
    """Open the folder of a search for this process alone; refuse the folder of another search."""
    if (out / STUDY).exists() and (held := parse(out / STUDY)) != identity:
        other = next(k for k in identity if held.get(k) != identity[k])
        wrong = f"{out} holds another search: its {other} differs"
        raise CoveyError(f"{wrong}; choose another --out, or remove it")
    try:
        (out / RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        wrong = f"cannot make the folder {out}: {error.strerror}; choose another --out"
        raise CoveyError(wrong) from error
    try:
        with atomic.exclusive(out / ".lock", wait=False):
            if not (out / STUDY).exists():
                atomic.write_text(out / TRIALS, "")
                atomic.write_text(out / STUDY, toml_writer.dumps(identity))
            yield Journal(out / TRIALS)
    except BlockingIOError as error:
        wrong = f"another covey tune is running in {out}; wait for it, or choose another --out"
        raise CoveyError(wrong) from error

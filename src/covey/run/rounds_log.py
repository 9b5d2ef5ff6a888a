"""The log of a run's rounds, `rounds.jsonl`: a row per round with its time, traffic and clients."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import torch

from covey.core import CoveyError, atomic
from covey.engine.fleet.base import Metered

from . import ROUNDS as ROUNDS
from .checkpoint import AGAIN

Times = tuple[float, float]  # wall and CPU seconds
PartMetrics = dict[str, dict[str, float]]  # name of a part -> name of a metric -> value


@dataclass
class Stopwatch:
    """Wall and CPU seconds of a run, including what earlier processes of the run recorded."""

    wall: float = field(default_factory=lambda: time.perf_counter())
    cpu: float = field(default_factory=lambda: time.process_time())
    before: Times = (0.0, 0.0)
    elsewhere: Callable[[], float] = lambda: 0.0  # CPU seconds of worker processes

    def restart(self) -> None:
        """Begins at the present time, for a run that goes back to a checkpoint."""
        self.wall, self.cpu, self.before = time.perf_counter(), time.process_time(), (0.0, 0.0)

    def read(self) -> Times:
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        return self.before[0] + wall, self.before[1] + cpu + self.elsewhere()


@dataclass
class RoundsLog:
    """Appends rows to the file at checkpoints: a killed run repeats the rounds after the last."""

    path: Path
    stopwatch: Stopwatch
    device: torch.device  # the device on which the clients compute
    written: int = 0  # the length of the file in bytes
    pending: list[str] = field(default_factory=list)  # rows since the last checkpoint
    began: Times = (0.0, 0.0)  # of the stopwatch, when the round began
    traffic: tuple[int, int] = (0, 0)  # bytes up and down that the meter had counted at that time

    @classmethod
    def create(cls, path: Path, stopwatch: Stopwatch, began: Times, device: torch.device) -> Self:
        """Starts the log of a run whose enrolment began at the reading `began`."""
        atomic.write_text(path, "")
        return cls(path, stopwatch, device, began=began)

    @classmethod
    def resume(cls, path: Path, stopwatch: Stopwatch, rounds: int, device: torch.device) -> Self:
        """Keeps the rows of enrolment and of `rounds` rounds; sets the stopwatch to the last."""
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        kept = lines[: rounds + 1]
        try:
            last = json.loads(kept[rounds])
            stopwatch.before = float(last["elapsed"]), float(last["cpu_elapsed"])
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise CoveyError(f"{path} has lost rows that the checkpoint needs; {AGAIN}") from error
        return cls(path, stopwatch, device, sum(map(len, kept)))

    def start(self, fleet: Metered) -> None:
        """Marks the beginning of a round."""
        self.began, self.traffic = self._now(), (fleet.meter.up, fleet.meter.down)

    def stop(self, fleet: Metered, number: int, asked: int, came: int, told: PartMetrics) -> None:
        """Adds the row of a round that has ended; only its times differ between equal runs."""
        now, meter = self._now(), fleet.meter
        row = {
            "round": number,
            "clients": came,
            "dropped": asked - came,
            "up_bytes": meter.up - self.traffic[0],
            "down_bytes": meter.down - self.traffic[1],
            "seconds": round(now[0] - self.began[0], 6),
            "cpu_seconds": round(now[1] - self.began[1], 6),
            "elapsed": round(now[0], 6),  # since the run began, with data, evaluation, checkpoints
            "cpu_elapsed": round(now[1], 6),
        } | ({"told": told} if told else {})
        self.pending.append(json.dumps(row) + "\n")

    def _now(self) -> Times:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return self.stopwatch.read()

    def flush(self) -> None:
        """Writes pending rows; called before a checkpoint is saved, which relies on them."""
        if self.pending:
            self.written = atomic.append(self.path, self.written, "".join(self.pending))
            self.pending = []

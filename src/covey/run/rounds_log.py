"""What each round took: a line of `rounds.jsonl` with its time, its traffic and who took part."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from covey.core import atomic
from covey.core.errors import CoveyError
from covey.engine.fleet.base import Metered

ROUNDS = "rounds.jsonl"
Told = dict[str, dict[str, float]]  # part -> name -> number


@dataclass
class Watch:
    """Wall and CPU seconds of a run: of this process, and of those before it as far as they were written down."""

    wall: float = field(default_factory=lambda: time.perf_counter())
    cpu: float = field(default_factory=lambda: time.process_time())
    before: tuple[float, float] = (0.0, 0.0)

    def read(self) -> tuple[float, float]:
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        return self.before[0] + wall, self.before[1] + cpu


@dataclass
class Trace:
    """Rows since the last checkpoint wait in memory: a killed run takes these rounds again."""

    path: Path
    watch: Watch
    written: int = 0  # bytes
    waiting: list[str] = field(default_factory=list)
    lap: tuple[float, float] = (0.0, 0.0)  # the watch when the round began
    traffic: tuple[int, int] = (0, 0)  # the meter then
    device: torch.device = field(
        default_factory=lambda: torch.device("cpu")
    )  # on which the clients compute

    @classmethod
    def begin(
        cls, path: Path, watch: Watch, lap: tuple[float, float], device: torch.device
    ) -> "Trace":
        """Of a run whose enrolment began at `lap`."""
        atomic.write_text(path, "")
        return cls(path, watch, lap=lap, device=device)

    @classmethod
    def resume(
        cls, path: Path, watch: Watch, rounds: int, again: str, device: torch.device
    ) -> "Trace":
        """Goes on behind the rows of enrolment and of these rounds; the watch goes on from the last of them."""
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        whole = lines[: rounds + 1]
        try:
            last = json.loads(whole[rounds])
            watch.before = float(last["elapsed"]), float(last["cpu_elapsed"])
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise CoveyError(
                f"{path} has lost rows that the checkpoint counts on; {again}"
            ) from error
        return cls(path, watch, sum(map(len, whole)), device=device)

    def start(self, fleet: Metered) -> None:
        """A round begins."""
        self.lap, self.traffic = self._now(), (fleet.meter.up, fleet.meter.down)

    def stop(
        self, fleet: Metered, number: int, asked: int, answered: int, told: Told | None = None
    ) -> None:
        """It has ended; what it took goes into a row. Times are the only figures that differ from run to run."""
        now, meter = self._now(), fleet.meter
        row = {
            "round": number,
            "clients": answered,
            "dropped": asked - answered,
            "up_bytes": meter.up - self.traffic[0],
            "down_bytes": meter.down - self.traffic[1],
            "seconds": round(now[0] - self.lap[0], 6),
            "cpu_seconds": round(now[1] - self.lap[1], 6),
            "elapsed": round(now[0], 6),  # of the run so far, with data, measuring and checkpoints
            "cpu_elapsed": round(now[1], 6),
        } | ({"told": told} if told else {})  # what the method's parts say of it
        self.waiting.append(json.dumps(row) + "\n")

    def _now(self) -> tuple[float, float]:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return self.watch.read()

    def flush(self) -> None:
        """Before a checkpoint, so that it never counts on a row that is not there."""
        if self.waiting:
            self.written = atomic.append(self.path, self.written, "".join(self.waiting))
            self.waiting = []

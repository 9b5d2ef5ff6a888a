"""What the benchmarks share: the machine and its limits, data, fair timing, and the engine."""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from covey.contract.fleet import Request
from covey.core.messages import Download, Round, Sent, Upload
from covey.core.ragged import Fields
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.method import Method
from covey.engine.rounds import Server, enrol, run_round, start
from covey.run.assemble import clients_of, method_of, prepare
from covey.run.config.schema import Config
from covey.run.config.shipped import read
from covey.run.config.tree import assign, merge

ROOT = Path(__file__).parents[1]
SIZES = {  # of the built-in generator where the dataset itself is not at hand
    "ml-100k": ("data.users=943", "data.items=1682", "data.mean_items=106"),
    "ml-1m": ("data.users=6040", "data.items=3706", "data.mean_items=165.6"),
    "beauty": (
        "data.users=4096",
        "data.items=54542",
        "data.mean_items=10.8",
    ),  # 8.8 of them for training
    "amazon-beauty-bert4rec": ("data.users=40226", "data.items=54542", "data.mean_items=8.8"),
}


def source_of(dataset: str) -> list[str]:
    """Settings of the dataset, if COVEY_DATA has it, or of a synthetic one of its size."""
    where = os.environ.get("COVEY_DATA")
    if where and (Path(where) / dataset).is_dir():
        return [f"data.name={dataset}"]
    return ["data.name=synthetic", *SIZES[dataset]]


def config_of(method: str, preset: str, *assignments: str) -> Config:
    """The configuration of a method, with the settings of the stored records if there are any."""
    recorded = ROOT / "papers" / "methods" / f"{method}.toml"
    base = read("methods", str(recorded) if recorded.exists() else method)
    tree = merge(base, read("presets", preset))
    return Config.of(assign({"method": method, "preset": preset, **tree}, assignments))


@dataclass
class Engine:
    """Covey's own path: a simulated fleet and one round after the other."""

    config: Config
    method: Method
    fleet: SimulatedFleet
    server: Server
    number: int = 0
    lengths_N: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.lengths_N = self.fleet.data.training.items.lengths

    @classmethod
    def of(cls, config: Config) -> "Engine":
        prepared = prepare(config)
        method = method_of(config, prepared.catalogue)
        clients = clients_of(config, prepared, method)
        fleet, server = SimulatedFleet.of(clients), start(method)
        server = replace(
            server, public={k: v.to(fleet.device) for k, v in server.public.items()}
        )  # as a run begins
        return cls(config, method, fleet, enrol(server, fleet, method))

    def stratified(self, many: int) -> Tensor:
        """Clients spread evenly over all lengths of lists; 0: everybody."""
        order = (self.lengths_N * len(self.lengths_N) + torch.arange(len(self.lengths_N))).argsort()
        order = order[self.lengths_N[order] > 0]
        if not many or many >= len(order):
            return order.sort().values
        return order[((torch.arange(many) + 0.5) * len(order) / many).long()].sort().values

    def round(self, ids_C: Tensor) -> None:
        self.number += 1
        self.server, done = run_round(
            self.server, self.fleet, self.method, Round(self.number, ids_C)
        )
        assert len(done.ids_C) == len(ids_C)

    def evaluate(self, ids_C: Tensor) -> Fields:
        answer = self.fleet.ask(
            Request("evaluate", self.number, ids_C, Download(Sent(dict(self.server.public))))
        )
        assert isinstance(answer, Upload)
        return answer.extra["evaluate"]

    def double(self) -> "Engine":
        """The same in float64, for tests of equality."""
        dense = self.fleet.store.dense
        dense.update({k: v.double() for k, v in dense.items() if v.is_floating_point()})
        self.server = replace(
            self.server, public={k: v.double() for k, v in self.server.public.items()}
        )
        return self


def cpu_seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


@dataclass(frozen=True)
class Times:
    """CPU seconds of a whole round, for each side and repeat."""

    seconds: dict[str, list[float]]

    def median(self, side: str) -> float:
        return statistics.median(self.seconds[side])

    def times(self, side: str, ours: str = "covey") -> float:
        return self.median(side) / self.median(ours)

    def spread(self, side: str, ours: str = "covey") -> tuple[float, float]:
        """The least and the greatest ratio among the repeats."""
        ratios = [a / b for a, b in zip(self.seconds[side], self.seconds[ours])]
        return min(ratios), max(ratios)


def interleaved(
    sides: Mapping[str, Callable[[], object]], repeats: int, once: tuple[str, ...] = ()
) -> Times:
    """All sides in turn, several times over; those in `once` only in the first turn."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(repeats):
        for name, work in sides.items():
            if repeat == 0 or name not in once:
                seconds[name].append(cpu_seconds(work))
    return Times(seconds)


def best_rate(amount: float, work: Callable[[], object], repeats: int = 5) -> float:
    """Units per CPU second of the best repeat: what the machine can do when nobody disturbs it."""
    work()
    return amount / min(cpu_seconds(work) for _ in range(repeats))


def ceilings() -> dict[str, float]:
    """What one core of this machine does at best."""
    n, clients, rows = 2048, 16, 512
    a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    x, w = torch.randn(clients, rows, 32), torch.randn(clients, 32, 32)
    y = torch.empty(clients, rows, 32)
    big, copy = torch.zeros(64 << 20), torch.zeros(64 << 20)  # 256 MB each

    def many_bmm() -> None:
        for _ in range(200):
            torch.bmm(x, w, out=y)

    return {
        "sgemm 2048^3, GFLOP/s": best_rate(2e-9 * n**3, lambda: torch.mm(a, b, out=out), 3),
        "bmm [16,512,32]x[16,32,32], GFLOP/s": best_rate(
            200 * 2e-9 * clients * rows * 32 * 32, many_bmm
        ),
        "copy of 256 MB, GB/s read and written": best_rate(
            2e-9 * big.nbytes, lambda: copy.copy_(big)
        ),
    }


def machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = next(
        (int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**20, 1),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def commit() -> str:
    """The commit that was measured, with a mark where the code was changed after it."""
    head, changes = _git("rev-parse", "--short=12", "HEAD"), _git("status", "--porcelain", "src")
    return f"{head}, changed" if changes else head or "unknown"


def _git(*words: str) -> str:
    """The output of a git command."""
    command = ["git", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def write(name: str, result: Mapping[str, Any]) -> Path:
    path = ROOT / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

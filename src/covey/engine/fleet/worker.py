"""A worker: clients that live together, as a process or an actor that can be called.

It owns whole shards, the files of a checkpoint, so a run can be resumed by more or fewer workers.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from covey.contract.fleet import Request
from covey.core import CoveyError, FieldDict, tensor_file
from covey.engine.client.settings import FLOATS_PER_MB

from .base import Clients
from .hosted import Answer, Hosted
from .store import Store

SHARD = "covey shard 2"  # the format of a shard's file


class WorkerLost(RuntimeError):
    """A worker process has ended; the run goes back to its last checkpoint."""


@dataclass(frozen=True)
class Shards:
    """Which shard and which worker each client belongs to; attackers share a memory and a shard."""

    shards: int
    n_honest: int

    def of(self, ids_C: Tensor) -> Tensor:
        """Returns the shard of each client, [C]."""
        return torch.where(ids_C < self.n_honest, ids_C % self.shards, 0)


@dataclass
class Worker:
    """The methods that the fleet calls."""

    hosted: Hosted
    answered: int = 0  # requests to clients

    def ask(self, request: Request) -> tuple[Answer, float]:
        """Returns the answer of the clients, and the CPU seconds that it took."""
        began = time.process_time()
        self.answered += len(request.ids_C)
        return self.hosted.ask(request), time.process_time() - began

    def busy(self) -> int:
        """Returns how many requests to clients this worker has carried out."""
        return self.answered

    def private(self, ids_C: Tensor) -> list[tuple[Tensor, FieldDict]]:
        """Returns what some clients keep, for studies of a simulation."""
        return list(self.hosted.private(ids_C))

    def save(self, folder: Path, shards: Shards, numbers: list[int], stamp: str) -> dict[str, int]:
        """Writes the files of some shards, named by `stamp`; returns their checksums."""
        shard_N, out = shards.of(self.hosted.ids_N), {}
        for number in numbers:
            ids_C = self.hosted.ids_N[shard_N == number]
            name = f"checkpoint-{stamp}-{number}.safetensors"
            about = {"format": SHARD, "stamp": stamp, "shard": number}
            flat = {"ids": ids_C, **self.hosted.state(ids_C)}
            out[name] = tensor_file.write(folder / name, flat, about)
        return out

    def load(self, folder: Path, sums: dict[str, int]) -> None:
        """Takes the state of those clients in the files that live here."""
        mine = self.hosted
        for name, total in sums.items():
            about, state = tensor_file.read(folder / name, SHARD)
            if about["sum"] != total:
                raise CoveyError(f"{folder / name} belongs to another run; {tensor_file.AGAIN}")
            ids_C = state.pop("ids")
            here = torch.isin(ids_C, mine.ids_N.cpu()).nonzero()[:, 0]
            if len(here) == 0:
                continue
            if len(here) < len(ids_C):  # saved by other workers
                shared = {k: v for k, v in state.items() if k.startswith("crew/")}
                whole = Store(len(ids_C), sparse=mine.store.sparse)
                whole.load(torch.arange(len(ids_C)), state)
                state = whole.state(here) | shared
            mine.load(ids_C[here].to(mine.ids_N.device), state)


@dataclass
class Here:
    """The only worker, in this process."""

    worker: Worker
    apart: bool = False  # whether the workers are other processes

    def call(self, what: str, arguments: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        """Calls a method of each worker at the same time; None leaves a worker out.

        Returns what those that were called returned, in order; `WorkerLost` if one has ended.
        """
        return [getattr(self.worker, what)(*some) for some in arguments if some is not None]

    def close(self) -> None:
        """Nothing to end."""


def worker_of(clients: Clients, ids_N: Tensor, n_all: int) -> Worker:
    """Returns a worker that hosts the clients `ids_N`, whose data are those of `clients`."""
    malicious = clients.malicious
    return Worker(Hosted(clients.program, ids_N, clients.data, clients.seed, n_all, malicious))


def slice_of(clients: Clients, ids_N: Tensor, workers: int) -> Clients:
    """Returns the clients `ids_N` with their data and one worker's share of the memory."""
    program, malicious = clients.program, clients.malicious
    engine = program.engine
    share = max(engine.floats_per_chunk() // FLOATS_PER_MB // workers, 1)
    program = replace(program, engine=replace(engine, memory_mb=share))
    if malicious and not bool((ids_N >= malicious.first).any()):
        malicious = None
    elif malicious:
        malicious = replace(malicious, honest=program)
    return replace(clients, program=program, data=clients.data.take(ids_N), malicious=malicious)

"""All clients on one machine or one cluster: in this process, or in several workers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor

from covey.aggregate.fold import Fold
from covey.contract.fleet import Request
from covey.core import Answers, CoveyError, Field, FieldDict, Fields, Upload, cat, take

from .base import Clients, LocalFleet
from .hosted import Answer, Hosted
from .memory import allocate, limit_of
from .processes import Processes
from .ray_actors import RayActors
from .store import Store
from .worker import Here, Shards, slice_of, worker_of

MANY = 2048  # clients from which on a checkpoint has several files
FILES = 16  # that it then has, unless engine.shards says otherwise
Team = Here | Processes | RayActors
Backend = Literal["processes", "ray"]


@dataclass
class SimulatedFleet(LocalFleet):
    """The default fleet. Its results have the same bits for any number of workers and chunks."""

    workers: int = 1
    backend: Backend = "processes"
    pool: Processes | None = None  # worker processes that serve several fleets in turn
    spent: list[float] = field(default_factory=list)  # CPU seconds of each worker process
    team: Team = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        engine = self.program.engine
        usual = FILES if self.n_all >= MANY else self.workers
        self.shards = Shards(engine.shards or max(usual, self.workers), self.n_honest)
        if self.workers > self.shards.shards:
            wrong = f"{self.workers} workers and engine.shards = {engine.shards}"
            less = "lower --jobs, or raise engine.shards"
            raise CoveyError(f"{wrong}: a worker holds whole shards; {less}")
        if self.workers > 1 and engine.one_pass:
            wrong = "engine.one_pass adds numbers in an order that only one process has"
            raise CoveyError(f"{wrong}; leave it out, or use --jobs 1")
        clients = Clients(self.program, self.data, self.seed, self.n_present, self.malicious)
        ids_N = torch.arange(self.n_all, device=self.device)
        if self.workers == 1 and self.backend == "processes":
            self.team = Here(worker_of(clients, ids_N, self.n_all))
            return
        self.team = self._start(clients, ids_N)
        self.data = self.data.take(ids_N[:0])  # the workers have it

    @classmethod
    def over(cls, clients: Clients, workers: int, backend: Backend = "processes") -> Self:
        """Sets the clients up in several worker processes, or actors of a Ray cluster."""
        parts = (clients.program, clients.data, clients.seed, clients.n_present, clients.malicious)
        return cls(*parts, workers=workers, backend=backend)

    def _start(self, clients: Clients, ids_N: Tensor) -> Team:
        if self.device.type != "cpu":
            raise CoveyError("several workers compute on CPUs; use --jobs 1 with a GPU")
        if self.workers > self.n_all:
            wrong = f"{self.workers} workers for {self.n_all} clients"
            raise CoveyError(f"{wrong}; use --jobs {self.n_all} or fewer")
        mine = (ids_N[pick] for pick in self._picks(ids_N))
        slices = ((slice_of(clients, ids_M, self.workers), ids_M) for ids_M in mine)
        if self.backend == "ray":
            return RayActors.start(slices, self.n_all)
        team = self.pool or Processes.spawn(self.workers)
        try:
            team.host(slices, self.n_all)
        except BaseException:
            team.close()
            raise
        return team

    def _picks(self, ids_C: Tensor) -> list[Tensor]:
        """For each worker, the places of its clients among some."""
        home_C = self.shards.of(ids_C) % self.workers
        return [(home_C == k).nonzero()[:, 0] for k in range(self.workers)]

    @property
    def hosted(self) -> Hosted:
        """The clients, if they live in this process."""
        if not isinstance(self.team, Here):
            raise CoveyError("the clients live in worker processes; use --jobs 1")
        return self.team.worker.hosted

    @property
    def store(self) -> Store:
        return self.hosted.store

    def private(self, ids_C: Tensor) -> Iterator[tuple[Tensor, FieldDict]]:
        if not self.team.apart:
            yield from self.hosted.private(ids_C)
            return
        picks = self._picks(ids_C)
        asked = [pick for pick in picks if len(pick)]
        parts = [(ids_C[pick],) if len(pick) else None for pick in picks]
        for pick, found in zip(asked, self.team.call("private", parts)):
            yield from ((pick[some], kept) for some, kept in found)

    def convert(self, change: Callable[[FieldDict], FieldDict]) -> None:
        self.store.dense = change(self.store.dense)

    def ask(self, request: Request) -> Answers:
        request = self.scaled(request.to(self.device))
        answers = self._asked(request)
        for answer in answers:
            self.meter.merge(answer.meter)
        ids_C = request.ids_C
        if request.fold:
            assert request.scales is not None
            fold = Fold(request.scales)
            for answer in answers:
                assert answer.fold is not None
                fold.merge(answer.fold)
            total = fold.total()
            return replace(total, ids_C=ids_C[torch.isin(ids_C, total.ids_C.to(ids_C))])
        uploads = [upload for answer in answers for upload in answer.uploads]
        if not uploads:
            return Upload(ids_C[:0], torch.zeros(0))
        return _join(uploads, ids_C, limit_of(self.program.engine))

    def _asked(self, request: Request) -> list[Answer]:
        if not self.team.apart:
            return [answer for answer, _ in self.team.call("ask", [(request,)])]
        picks = self._picks(request.ids_C)
        parts = [(request.take(pick),) if len(pick) else None for pick in picks]
        found = self.team.call("ask", parts)
        asked = [k for k, some in enumerate(parts) if some is not None]
        self.spent = self.spent or [0.0] * self.workers
        for k, (_, seconds) in zip(asked, found):
            self.spent[k] += seconds
        return [answer for answer, _ in found]

    def save_shards(self, folder: Path, stamp: str) -> dict[str, int]:
        numbers = range(self.shards.shards)
        mine = [[n for n in numbers if n % self.workers == k] for k in range(self.workers)]
        found = self.team.call("save", [(folder, self.shards, some, stamp) for some in mine])
        return {name: total for sums in found for name, total in sums.items()}

    def load_shards(self, folder: Path, sums: dict[str, int]) -> None:
        self.team.call("load", [(folder, sums)] * self.workers)

    def whole_state(self) -> Fields:
        """Everything that changes during a run, also what the clients keep in this process."""
        return {**self.hosted.state(self.hosted.ids_N), **self.state()}

    def load(self, state: Fields) -> None:
        """Takes what `state` or `whole_state` returned."""
        super().load(state)
        if isinstance(self.team, Here):
            self.hosted.load(self.hosted.ids_N, state)

    def close(self) -> None:
        """Ends the workers, unless they are of a pool."""
        if self.team is not self.pool:
            self.team.close()


def _join(parts: list[Upload], ids_C: Tensor, limit: int) -> Upload:
    """One upload in the order of `ids_C`, of the clients that answered. Empties the parts."""
    came = torch.cat([part.ids_C for part in parts])
    by_id = came.argsort()
    wanted = ids_C[torch.isin(ids_C, came)]
    pick = by_id[torch.searchsorted(came[by_id], wanted)]

    def whole(kinds: list[FieldDict]) -> FieldDict:
        return {k: _joined([d.pop(k) for d in kinds], pick, limit) for k in list(kinds[0])}

    update, model = whole([part.update for part in parts]), whole([part.model for part in parts])
    extra = {m: whole([part.extra[m] for part in parts]) for m in parts[0].extra}
    return Upload(wanted, torch.cat([part.weight_C for part in parts])[pick], update, model, extra)


def _joined(values: list[Any], pick: Tensor, limit: int) -> Field:
    """The same entries in another order; a part of a large table is freed once it is copied."""
    if not isinstance(values[0], Tensor):
        return take(cat(values), pick)
    out = allocate((len(pick), *values[0].shape[1:]), values[0], limit)
    place = pick.argsort()
    while values:
        part = values.pop(0)
        out[place[: len(part)]] = part
        place = place[len(part) :]
    return out

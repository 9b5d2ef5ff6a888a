"""What a run needs of its fleet besides the exchanges of a round, and what it knows of its clients.

`[fleet] use = "module:Class"` names the fleet of a run. The class has a class method `of(clients)`
and implements `RunFleet`; one that also implements `Simulation` can be asked for recommendations.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from covey.contract.attack import Attack
from covey.contract.fleet import Fleet, Request
from covey.core import FieldDict, Fields, Scales, below
from covey.engine.client.malicious import Malicious
from covey.engine.client.program import LocalData, Program

from .meter import Meter


class Metered(Protocol):
    """A fleet that counts its traffic and what is disclosed."""

    @property
    def meter(self) -> Meter: ...


class Resumable(Protocol):
    """A fleet whose state fits into a checkpoint."""

    def state(self) -> Fields:
        """Everything that changes during a run, as tensors by name."""

    def load(self, state: Fields) -> None:
        """Takes the state of an earlier process; names that belong to others are ignored."""


@runtime_checkable
class Sharded(Protocol):
    """A fleet that writes what its clients keep into files of its own, beside the checkpoint."""

    def save_shards(self, folder: Path, stamp: str) -> dict[str, int]:
        """Writes the files, named by `stamp`; returns the checksum of each."""

    def load_shards(self, folder: Path, sums: dict[str, int]) -> None:
        """Takes the clients' state from such files."""


@runtime_checkable
class KeyHolders(Protocol):
    """A fleet whose clients share what no server sees, such as keys; its state includes it."""

    agreed: Fields


class RunFleet(Fleet, Metered, Resumable, Protocol):
    """The fleet of a run."""

    @classmethod
    def of(cls, clients: "Clients") -> Self:
        """Sets the clients up; those from `clients.n_present` on join later."""

    def join(self, ids_C: Tensor) -> None:
        """Adds clients that were not there at the start to `ids_N`."""


class Simulation(RunFleet, Protocol):
    """A fleet in this process, whose clients' private state can be read and replaced."""

    def private(self, ids_C: Tensor) -> Iterator[tuple[Tensor, FieldDict]]:
        """Places in `ids_C`, and what these clients keep, for all of them in one or more groups."""

    def convert(self, change: Callable[[FieldDict], FieldDict]) -> None:
        """Replaces what clients keep by `change` of it, field by field the same names."""


@dataclass(frozen=True)
class Clients:
    """The clients of a run, as a fleet sets them up."""

    program: Program  # what honest clients execute
    data: LocalData  # the local data of all clients; attackers come after the honest clients
    seed: int  # the seed of the run
    n_present: int  # how many of the honest clients are there from the start
    malicious: Malicious | None = None  # what attackers execute, if there are any

    @property
    def population(self) -> "Population":
        held, lengths_N = self.data.held, self.data.training.items.lengths
        test_N = torch.zeros_like(lengths_N) if held is None else held.test.lengths
        bad, n = self.malicious, len(lengths_N)
        n_honest, attack = (bad.first, bad.attack) if bad else (n, None)
        return Population(self.program, lengths_N, test_N, n_honest, attack)


@dataclass(frozen=True)
class Population:
    """What a run knows about its clients, whichever fleet they are in."""

    program: Program  # what honest clients execute
    lengths_N: Tensor  # how many training items each client has; attackers come last
    test_lengths_N: Tensor  # how many test items each client has
    n_honest: int  # the number of honest clients
    attack: Attack | None = None  # what attackers do, if there are any

    @property
    def device(self) -> torch.device:
        return self.lengths_N.device

    def __len__(self) -> int:
        """All clients, attackers included."""
        return len(self.lengths_N)

    def honest(self, ids_C: Tensor) -> Tensor:
        """The honest ones among some clients."""
        return ids_C[ids_C < self.n_honest]


@dataclass
class LocalFleet:
    """What fleets on this machine have in common; `Clients` explains the fields."""

    program: Program
    data: LocalData
    seed: int = 0
    n_present: int = 0  # honest clients that have joined; 0: all
    malicious: Malicious | None = None
    hides: frozenset[str] = frozenset()
    meter: Meter = field(init=False)

    def __post_init__(self) -> None:
        items = self.data.training.items
        self.n_all, self.device = len(items), items.values.device
        self.n_honest = self.malicious.first if self.malicious else self.n_all
        self.n_present = self.n_present or self.n_honest
        self.meter = Meter(self.n_all)
        self.agreed: Fields = {}  # what clients share among themselves, such as keys
        self.ranges: dict[str, dict[str, float]] = {}  # by step and field, as declared
        for d in self.program.disclosures():
            self.ranges.setdefault(d.step, {})[d.name] = d.largest

    @classmethod
    def of(cls, clients: Clients) -> Self:
        own = clients.program, clients.data, clients.seed
        return cls(*own, clients.n_present, clients.malicious)

    @property
    def ids_N(self) -> Tensor:
        ids_N = torch.arange(self.n_all, device=self.device)
        return ids_N[(ids_N < self.n_present) | (ids_N >= self.n_honest)]

    def join(self, ids_C: Tensor) -> None:
        self.n_present += len(ids_C)

    def scaled(self, request: Request) -> Request:
        """The same request with the ranges that its answers may have."""
        if request.scales is not None:
            return request
        scales = Scales(len(request.ids_C), self.ranges.get(request.step, {}))
        if request.fold:
            scales.check()
        return replace(request, scales=scales)

    def state(self) -> Fields:
        agreed = {f"agreed/{k}": v for k, v in self.agreed.items()}
        return {**self.meter.state(), **agreed, "present": torch.tensor(self.n_present)}

    def load(self, state: Fields) -> None:
        self.meter.load({k: v.cpu() for k, v in state.items() if k.startswith("meter/")})
        self.n_present = int(state["present"])
        self.agreed = dict(below(state, "agreed/"))

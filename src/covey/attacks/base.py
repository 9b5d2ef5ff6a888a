"""What an attack is to Covey: it sees what a client sees, and decides what is sent instead."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ..core import Catalogue, CoveyError, Download, Drawer, Ragged, Upload
from ..mechanism import TrainingData
from ..models.base import Model
from ..rng import Rng


@dataclass(frozen=True)
class AttackView:
    """What an attacker has: its own profile, the downloads such a client gets, the model's code."""

    step: str
    round: int
    download: Download
    data: TrainingData
    ids_C: Tensor
    rng: Rng
    model: Model
    catalogue: Catalogue
    memory: Drawer  # what the attackers told each other in earlier rounds
    kept: Drawer = field(default_factory=dict)  # what such a client keeps
    known: Ragged | None = None  # items of the honest users, where an attack is `Informed`


class Attack(Protocol):
    """`knowledge` names what a paper assumes beyond that, for the report; empty: nothing."""

    @property
    def name(self) -> str: ...
    @property
    def knowledge(self) -> str: ...

    def poison(self, view: AttackView, upload: Upload) -> tuple[Drawer, Upload]:
        """The honest answer of such a client comes in, what is sent instead goes out.

        An item table that clients upload as it is comes as its change, and goes out so (own_table.py).
        """


@runtime_checkable
class Profiled(Protocol):
    """An attack whose clients make up a list and train on it as an honest client would."""

    def profile(self, view: AttackView) -> TrainingData: ...


@runtime_checkable
class Informed(Protocol):
    """An attack that is given a share of every honest user's training items, rounded up."""

    @property
    def leak(self) -> float: ...


def chosen(view: AttackView, name: str, targets: Sequence[int]) -> Tensor:
    """The targets, ascending, [K]."""
    n_items = view.catalogue.n_items
    if not targets or not 0 <= min(targets) <= max(targets) < n_items:
        raise CoveyError(f"{name}: targets = {list(targets)}; name items from 0 to {n_items - 1}")
    return torch.tensor(sorted(set(targets)), device=view.ids_C.device)


def has_users(view: AttackView, name: str) -> None:
    """For attacks that imagine users: their vectors must be all that is private."""
    if view.model.kept != ("user",) or "items" not in view.model.shared:
        raise CoveyError(f"{name} imitates private user vectors, which this model has not; use MF or NCF")


def popularity(view: AttackView, name: str) -> Tensor:
    """[I], for attacks that know it."""
    if view.catalogue.popularity_I is None:
        raise CoveyError(f"{name} knows how popular items are, and nobody says so here; use an attack that does not")
    return view.catalogue.popularity_I.to(view.ids_C.device)

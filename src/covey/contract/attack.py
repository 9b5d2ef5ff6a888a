"""What an attack is to Covey: it sees what a client sees, and decides what is sent instead."""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import Tensor

from covey.contract.model import Model
from covey.contract.views import TrainingData
from covey.core.messages import Catalogue, Download, Upload
from covey.core.ragged import FieldDict, Ragged
from covey.core.rng import Rng


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
    memory: FieldDict  # what the attackers told each other in earlier rounds
    kept: FieldDict = field(default_factory=dict)  # what such a client keeps
    known: Ragged | None = None  # items of the honest users, where an attack is `Informed`


class Attack(Protocol):
    """`knowledge` names what a paper assumes beyond that, for the report; empty: nothing."""

    @property
    def name(self) -> str: ...
    @property
    def knowledge(self) -> str: ...

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
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

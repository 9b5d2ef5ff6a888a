"""What an attack is to Covey: it sees what a client sees, and decides what is sent instead."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ..core import Catalogue, Download, Drawer, Upload
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


class Attack(Protocol):
    """`knowledge` names what a paper assumes beyond that, for the report; empty: nothing."""

    @property
    def name(self) -> str: ...
    @property
    def knowledge(self) -> str: ...

    def poison(self, view: AttackView, upload: Upload) -> tuple[Drawer, Upload]:
        """The honest answer of such a client comes in, what is sent instead goes out."""

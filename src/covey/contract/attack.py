"""The interface of attacks, which see what a client sees and replace what the client sends."""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import Tensor

from covey.contract.model import Model
from covey.contract.views import TrainingData
from covey.core import Catalogue, Download, FieldDict, Ragged, Rng, Upload


@dataclass(frozen=True)
class AttackView:
    """A cohort of C malicious clients as the attack sees it."""

    step: str  # the exchange, such as "train"
    round: int
    download: Download
    data: TrainingData
    ids_C: Tensor
    rng: Rng  # one stream per client
    model: Model
    catalogue: Catalogue
    memory: FieldDict  # what the malicious clients shared in earlier rounds
    kept: FieldDict = field(default_factory=dict)  # what a client keeps on the device
    known: Ragged | None = None  # items of the honest users, for an attack that is `Informed`


class Attack(Protocol):
    """An attack of malicious clients."""

    @property
    def name(self) -> str: ...
    @property
    def knowledge(self) -> str:
        """What the attack knows beyond `AttackView`, for the report; empty for nothing."""

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        """Returns what the malicious clients share, and what they send in place of `upload`.

        In this honest answer an item table that is uploaded as it is comes as its change, and has
        to be returned as one.
        """


@runtime_checkable
class Profiled(Protocol):
    """An attack whose clients invent a list of items and train on it as an honest client would."""

    def profile(self, view: AttackView) -> TrainingData: ...


@runtime_checkable
class Informed(Protocol):
    """An attack that knows a share of every honest user's training items, rounded up."""

    @property
    def leak(self) -> float: ...

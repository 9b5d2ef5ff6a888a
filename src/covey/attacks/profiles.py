"""Made-up lists of items, and attacks that upload what honest training on such a list gives."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.contract.views import TrainingData
from covey.core import Field, FieldDict, Rng, Rows, Upload, positive

from .base import AttackView, TrainingAttack, equal_lists


class RandomList(TrainingAttack):
    """Base of attacks without targets, whose clients have random items, the same in all rounds."""

    items: int

    def __post_init__(self) -> None:
        positive(self.name, items=self.items)

    def profile(self, view: AttackView) -> TrainingData:
        none = torch.zeros(0, dtype=torch.long, device=view.ids_C.device)
        return random_list(view, self.items, none)


class ScaledUpdate(ABC):
    """Base of attacks that train honestly on a made-up list, and send `scale` times the update."""

    scale: float
    knowledge: str = ""

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        return {}, scaled_upload(upload, self.scale)

    @abstractmethod
    def profile(self, view: AttackView) -> TrainingData:
        """Returns the list that each attacker trains on."""


@dataclass(frozen=True)
class PromotingList(ScaledUpdate):
    """Base of attacks whose clients have the targets and other items, the same in all rounds."""

    targets: tuple[int, ...] = (0,)
    items: int = 30  # length of the list, with the targets
    scale: float = 1.0  # multiplies the update
    name: str = ""

    def __post_init__(self) -> None:
        positive(self.name, items=self.items)


def random_items(rng: Rng, n_items: int, many: int, without_K: Tensor) -> Tensor:
    """`many` different items of each client without those given, every set equally likely."""
    unit_CI = rng.uniform(n_items)
    unit_CI[:, without_K] = 2  # sorts last
    return unit_CI.argsort(dim=1, stable=True)[:, : min(many, n_items - len(without_K))]


def random_list(view: AttackView, many: int, without_K: Tensor) -> TrainingData:
    """A list of `many` random items for each attacker, the same in all rounds."""
    rng = view.rng.home("profile")
    return training_on(random_items(rng, view.catalogue.n_items, many, without_K))


def training_on(items_CL: Tensor) -> TrainingData:
    """Training data with these lists; negatives are drawn from the other items."""
    return TrainingData(equal_lists(items_CL), equal_lists(items_CL.sort(1).values))


def with_targets(target_K: Tensor, filler_CL: Tensor) -> TrainingData:
    """Training data with the targets followed by each attacker's other items."""
    return training_on(torch.cat([target_K.expand(len(filler_CL), -1), filler_CL], 1))


def scaled_upload(upload: Upload, scale: float) -> Upload:
    """The upload with its update multiplied by `scale`."""

    def scaled(value: Field) -> Field:
        if isinstance(value, Rows):
            return replace(value, values=value.values * scale)
        assert isinstance(value, Tensor)
        return value * scale

    return replace(upload, update={k: scaled(v) for k, v in upload.update.items()})

"""Made-up lists of items, and what attacks do with the honest update of such a list.

Attacks with the same list or the same use of its update inherit `RandomList` or `ScaledUpdate`.
"""

from dataclasses import replace

import torch
from torch import Tensor

from covey.contract.attack import AttackView
from covey.contract.views import TrainingData
from covey.core.checks import positive
from covey.core.messages import Upload
from covey.core.ragged import Field, FieldDict, Ragged, Rows
from covey.core.rng import Rng


class RandomList:
    """Attackers that have no target and train on random items, which they keep for good."""

    name: str
    items: int  # of the list

    def __post_init__(self) -> None:
        positive(self.name, items=self.items)

    def profile(self, view: AttackView) -> TrainingData:
        none = torch.zeros(0, dtype=torch.long, device=view.ids_C.device)
        return random_list(view, self.items, none)


class ScaledUpdate:
    """Attackers that train honestly on a made-up list, and send `scale` times the update."""

    scale: float

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        return {}, times(upload, self.scale)


def some_items(rng: Rng, n_items: int, many: int, without_K: Tensor) -> Tensor:
    """So many different items for each client, every set equally likely, [C, many]; fewer if there are no more."""
    unit_CI = rng.uniform(n_items)
    unit_CI[:, without_K] = 2  # last
    return unit_CI.argsort(dim=1, stable=True)[:, : min(many, n_items - len(without_K))]


def random_list(view: AttackView, many: int, without_K: Tensor) -> TrainingData:
    """A list of `many` random items for each attacker, the same in all rounds."""
    return listed(some_items(view.rng.home("profile"), view.catalogue.n_items, many, without_K))


def listed(items_CL: Tensor) -> TrainingData:
    """The lists as a client's own; negatives are drawn from the rest."""
    C, L = items_CL.shape
    offsets = torch.arange(C + 1, device=items_CL.device) * L
    return TrainingData(
        Ragged(items_CL.flatten(), offsets), Ragged(items_CL.sort(1).values.flatten(), offsets)
    )


def with_targets(target_K: Tensor, filler_CL: Tensor) -> TrainingData:
    return listed(torch.cat([target_K.expand(len(filler_CL), -1), filler_CL], 1))


def times(upload: Upload, scale: float) -> Upload:
    """The same update, so many times as large."""

    def one(value: Field) -> Field:
        if isinstance(value, Rows):
            return replace(value, values=value.values * scale)
        assert isinstance(value, Tensor)
        return value * scale

    return replace(upload, update={k: one(v) for k, v in upload.update.items()})

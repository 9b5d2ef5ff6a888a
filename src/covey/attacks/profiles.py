"""Made-up lists of items, and what attacks do with the honest update of such a list."""

from dataclasses import replace

import torch
from torch import Tensor

from covey.contract.views import TrainingData
from covey.core.messages import Upload
from covey.core.ragged import Field, Ragged, Rows
from covey.core.rng import Rng


def some_items(rng: Rng, n_items: int, many: int, without_K: Tensor) -> Tensor:
    """So many different items for each client, every set equally likely, [C, many]; fewer if there are no more."""
    unit_CI = rng.uniform(n_items)
    unit_CI[:, without_K] = 2  # last
    return unit_CI.argsort(dim=1, stable=True)[:, : min(many, n_items - len(without_K))]


def listed(items_CL: Tensor) -> TrainingData:
    """The lists as a client's own; negatives are drawn from the rest."""
    C, L = items_CL.shape
    offsets = torch.arange(C + 1, device=items_CL.device) * L
    return TrainingData(Ragged(items_CL.flatten(), offsets), Ragged(items_CL.sort(1).values.flatten(), offsets))


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

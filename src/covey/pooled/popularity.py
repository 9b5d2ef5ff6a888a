"""The floor: every user gets the same list, items by the number of users who have them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.core.ragged import Ragged
from covey.evaluate.ranking import distinct


@dataclass(frozen=True)
class FittedPopularity:
    """Users of each item in the training data."""

    count_I: Tensor

    def score(self, users_C: Tensor) -> Tensor:
        """Scores of all items, [C, I]."""
        return self.count_I.repeat(len(users_C), 1)

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        """Scores of some items of each user, [C, L]."""
        return self.count_I[items_CL]

    def items(self) -> Tensor:
        """The count of each item, [I, 1]."""
        return self.count_I[:, None]


@dataclass(frozen=True)
class Popularity:
    """Most popular items first; nothing to choose."""

    def fit(self, train: Ragged, n_items: int) -> FittedPopularity:
        """Count users; an item that a user has twice counts once."""
        return FittedPopularity(torch.bincount(distinct(train).values, minlength=n_items).float())

"""Popularity: the floor that recommends the same items to all users, the most popular first."""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.core.ragged import Ragged
from covey.evaluate.ranking import distinct


@dataclass(frozen=True)
class FittedPopularity:
    """The number of users of each item in the training data."""

    count_I: Tensor

    def score(self, users_C: Tensor) -> Tensor:
        return self.count_I.repeat(len(users_C), 1)

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        return self.count_I[items_CL]

    def items(self) -> Tensor:
        return self.count_I[:, None]


@dataclass(frozen=True)
class Popularity:
    """The model has no options."""

    def fit(self, train: Ragged, n_items: int) -> FittedPopularity:
        """Counts users; an item that a user has twice counts once."""
        return FittedPopularity(torch.bincount(distinct(train).values, minlength=n_items).float())

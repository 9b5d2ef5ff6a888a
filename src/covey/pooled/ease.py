"""EASE: H. Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019.

The ceiling that costs seconds: the linear map B from items to items with a zero diagonal that best
reproduces everybody's training items, in closed form.

Shape suffixes: C = users of a chunk, I = items, L = items to score per user.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core.checks import positive
from covey.core.ragged import Ragged
from covey.evaluate.ranking import distinct

GRAM_CHUNK = 1 << 24  # entries of X at a time


@dataclass(frozen=True)
class FittedEase:
    """Item-to-item weights and the users' training items they are applied to."""

    train: Ragged
    weight_II: Tensor

    def score(self, users_C: Tensor) -> Tensor:
        """Scores of all items, [C, I]: the sum of the weight rows of the user's items."""
        own = self.train.take(users_C)
        return F.embedding_bag(own.values, self.weight_II, own.offsets[:-1], mode="sum")

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        """Scores of some items of each user, [C, L]."""
        return self.score(users_C).gather(1, items_CL)

    def items(self) -> Tensor:
        """What each item says for the others, [I, I]."""
        return self.weight_II


@dataclass(frozen=True)
class Ease:
    """The one option is how strongly weights are shrunk."""

    weight: float = 300.0  # lambda

    def __post_init__(self) -> None:
        positive("pooled", weight=self.weight)

    def fit(self, train: Ragged, n_items: int) -> FittedEase:
        """B = I - P diag(1 / diag(P)) with P = (X'X + lambda I)^-1, inverted in double precision."""
        train = distinct(train)
        gram_II = gram(train, n_items)
        gram_II.diagonal().add_(self.weight)
        p_II = torch.cholesky_inverse(torch.linalg.cholesky(gram_II))
        b_II = p_II / -p_II.diagonal()
        b_II.fill_diagonal_(0)
        return FittedEase(
            train, b_II.float().contiguous()
        )  # LAPACK leaves columns together; scores add up rows


def gram(train: Ragged, n_items: int) -> Tensor:
    """X'X, [I, I] float64: how many users have both items. Single precision counts exactly up to 2^24 a chunk."""
    gram_II = torch.zeros(n_items, n_items, dtype=torch.float64, device=train.values.device)
    for users_C in torch.arange(len(train), device=train.values.device).split(
        max(1, GRAM_CHUNK // n_items)
    ):
        own = train.take(users_C)
        x_CI = torch.zeros(len(users_C), n_items, device=train.values.device)
        x_CI[own.owner, own.values] = 1
        gram_II += x_CI.T @ x_CI
    return gram_II

"""EASE: a strong pooled baseline with a closed-form solution, computed in seconds.

H. Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019. It is the linear map B
from items to items, with a zero diagonal, that best reproduces all users' training items.
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
        """The sum of the weight rows of the user's items, [C, I]."""
        own = self.train.take(users_C)
        return F.embedding_bag(own.values, self.weight_II, own.offsets[:-1], mode="sum")

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        return self.score(users_C).gather(1, items_CL)

    def items(self) -> Tensor:
        """The weights from each item to the others, [I, I]."""
        return self.weight_II


@dataclass(frozen=True)
class Ease:
    """Options of the model."""

    weight: float = 300.0  # lambda: how strongly weights are regularised

    def __post_init__(self) -> None:
        positive("pooled", weight=self.weight)

    def fit(self, train: Ragged, n_items: int) -> FittedEase:
        """B = I - P diag(1 / diag(P)) with P = (X'X + lambda I)^-1, in double precision."""
        train = distinct(train)
        gram_II = gram(train, n_items)
        gram_II.diagonal().add_(self.weight)
        p_II = torch.cholesky_inverse(torch.linalg.cholesky(gram_II))
        b_II = p_II / -p_II.diagonal()
        b_II.fill_diagonal_(0)
        # LAPACK's layout is by columns, but scores add up rows.
        return FittedEase(train, b_II.float().contiguous())


def gram(train: Ragged, n_items: int) -> Tensor:
    """X'X, [I, I] float64: how many users have both items.

    Chunks are counted in single precision, which is exact up to 2^24 users.
    """
    device = train.values.device
    gram_II = torch.zeros(n_items, n_items, dtype=torch.float64, device=device)
    for users_C in torch.arange(len(train), device=device).split(max(1, GRAM_CHUNK // n_items)):
        own = train.take(users_C)
        x_CI = torch.zeros(len(users_C), n_items, device=device)
        x_CI[own.owner, own.values] = 1
        gram_II += x_CI.T @ x_CI
    return gram_II

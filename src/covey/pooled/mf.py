"""Pooled matrix factorisation: logit = u.v, trained with cross-entropy and sampled negatives.

Koren, Bell and Volinsky (2009) in the variant for implicit feedback that the federated papers
compare with. Shape suffixes: C = users of a chunk, N = all users, I = items, D = width, L = items
to score per user, T = pairs of a user and an item.
"""

from dataclasses import dataclass
from typing import Self

import torch.nn.functional as F
from torch import Tensor

from .common import FitRequest, Fitted
from .pairs import PairTraining, table, train_pairs


@dataclass(frozen=True)
class FittedMF:
    """A vector for every user and every item."""

    user_ND: Tensor
    item_ID: Tensor
    layers: tuple[tuple[Tensor, Tensor], ...] = ()  # (weight, bias) of what compares them, if any

    def params(self) -> list[Tensor]:
        return [self.user_ND, self.item_ID, *(p for layer in self.layers for p in layer)]

    def logit(self, users_T: Tensor, items_T: Tensor) -> Tensor:
        return (F.embedding(users_T, self.user_ND) * F.embedding(items_T, self.item_ID)).sum(-1)

    def frozen(self) -> Self:
        user_ND, item_ID, *rest = (p.detach().clone() for p in self.params())
        return type(self)(user_ND, item_ID, tuple(zip(rest[::2], rest[1::2])))

    def score(self, users_C: Tensor) -> Tensor:
        return self.user_ND[users_C] @ self.item_ID.T

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        return self.logit(users_C[:, None], items_CL)

    def items(self) -> Tensor:
        return self.item_ID


@dataclass(frozen=True)
class PooledMF(PairTraining):
    """Options of the model and its training."""

    def fit(self, request: FitRequest) -> Fitted:
        seed, device = request.seed, request.device
        user_ND = table(seed, "pooled-mf-user", len(request.train), self.dim, device)
        item_ID = table(seed, "pooled-mf-item", request.n_items, self.dim, device)
        return train_pairs(self, FittedMF(user_ND, item_ID), request)

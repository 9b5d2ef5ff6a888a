"""Matrix factorisation on everybody's data: logit = u.v, cross entropy with sampled negatives.

Koren, Bell and Volinsky (2009) in the implicit variant that the federated papers compare with.
Shape suffixes: C = users of a chunk, N = all users, I = items, D = width, L = items to score per user, T = pairs.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core.checks import positive
from covey.core.ragged import Ragged

from .common import Fitted, OnEpoch
from .pairs import table, train_pairs


@dataclass(frozen=True)
class FittedMF:
    """A vector for every user and every item."""

    user_ND: Tensor
    item_ID: Tensor

    def params(self) -> list[Tensor]:
        """What is trained."""
        return [self.user_ND, self.item_ID]

    def logit(self, users_T: Tensor, items_T: Tensor) -> Tensor:
        """Score of each pair, [T]."""
        return (F.embedding(users_T, self.user_ND) * F.embedding(items_T, self.item_ID)).sum(-1)

    def frozen(self) -> "FittedMF":
        """A copy that further training leaves alone."""
        return FittedMF(*(p.detach().clone() for p in self.params()))

    def score(self, users_C: Tensor) -> Tensor:
        """Scores of all items, [C, I]."""
        return self.user_ND[users_C] @ self.item_ID.T

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        """Scores of some items of each user, [C, L]."""
        return self.logit(users_C[:, None], items_CL)

    def items(self) -> Tensor:
        """Item vectors, [I, D]."""
        return self.item_ID


@dataclass(frozen=True)
class PooledMF:
    """Options of the model and its training."""

    dim: int = 32
    lr: float = 0.001
    epochs: int = 100
    batch: int = 1024
    negatives: int = 4  # per positive, drawn again every epoch
    decay: float = 0.0  # L2 term in Adam's gradient
    patience: int = 0  # evaluations without a new best before training stops; 0: never

    def __post_init__(self) -> None:
        positive("pooled", patience=self.patience + 1)
        positive("pooled", dim=self.dim, lr=self.lr, epochs=self.epochs, batch=self.batch, negatives=self.negatives)

    def fit(
        self,
        train: Ragged,
        avoid: Ragged,
        n_items: int,
        seed: int,
        device: torch.device | str = "cpu",
        on_epoch: OnEpoch | None = None,
    ) -> Fitted:
        """Train on items per user, with negatives outside `avoid`."""
        user_ND = table(seed, "pooled-mf-user", len(train), self.dim, device)
        item_ID = table(seed, "pooled-mf-item", n_items, self.dim, device)
        return train_pairs(self, FittedMF(user_ND, item_ID), train, avoid, seed, on_epoch)

"""Training on pairs of a user and an item, for models with user and item vectors.

Shape suffixes: N = all users, T = pairs of a user and an item.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core import Ragged, Rng, positive
from covey.core.sampling import outside
from covey.evaluate.ranking import distinct

from .common import FitRequest, Fitted, shuffled


class PairModel(Fitted, Protocol):
    """A fitted model that is trained in place, pair by pair."""

    def params(self) -> list[Tensor]: ...
    def logit(self, users_T: Tensor, items_T: Tensor) -> Tensor:
        """Score of each pair, [T], with gradients."""

    def frozen(self) -> Fitted:
        """A copy that further training does not change."""


@dataclass(frozen=True)
class PairTraining:
    """The options of MF and NCF: the width of their vectors, and how they train on pairs."""

    dim: int = 32
    _: KW_ONLY
    lr: float = 0.001
    epochs: int = 100
    batch: int = 1024
    negatives: int = 4  # for each positive, drawn again in every epoch
    decay: float = 0.0  # L2 term in Adam's gradient
    patience: int = 0  # evaluations without a new best before training stops; 0: never

    def __post_init__(self) -> None:
        positive("pooled", patience=self.patience + 1, dim=self.dim, lr=self.lr)
        positive("pooled", epochs=self.epochs, batch=self.batch, negatives=self.negatives)


def table(seed: int, purpose: str, rows: int, dim: int, device: torch.device | str) -> Tensor:
    """A new embedding table, N(0, 0.01)."""
    return (Rng.server(seed, 0, purpose).normal(rows, dim)[0] * 0.01).to(device)


def train_pairs(options: PairTraining, model: PairModel, request: FitRequest) -> Fitted:
    """Minimises the cross-entropy of positives and negatives outside `request.avoid`, by Adam."""
    device, n_items, seed = request.device, request.n_items, request.seed
    train, avoid = request.train.to(device), distinct(request.avoid.to(device))
    params = [p.requires_grad_() for p in model.params()]
    optimiser = torch.optim.Adam(params, lr=options.lr, weight_decay=options.decay, fused=True)
    for epoch in range(1, options.epochs + 1):
        sample = pairs(train, avoid, n_items, options.negatives, seed, epoch)
        order_T = shuffled(len(sample[0]), seed, epoch).to(device)
        for users_T, items_T, label_T in zip(*(x[order_T].split(options.batch) for x in sample)):
            optimiser.zero_grad()
            F.binary_cross_entropy_with_logits(model.logit(users_T, items_T), label_T).backward()
            optimiser.step()
        if request.stops(epoch, model.frozen):
            break
    return model.frozen()


def pairs(
    train: Ragged, avoid: Ragged, n_items: int, negatives: int, seed: int, epoch: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Users, items and labels [T] of an epoch: all positives, then negatives outside `avoid`."""
    ids_N, free_N = torch.arange(len(train), device=train.values.device), n_items - avoid.lengths
    rng = Rng.of(seed, epoch, ids_N).fold("pooled-negatives")
    unit = rng.ragged_uniform(train.lengths * negatives * (free_N > 0))
    owner_T = unit.owner
    drawn_T = outside(avoid, n_items, unit.like((unit.values * free_N[owner_T]).long()))
    label_T = torch.ones(len(train.values) + len(drawn_T), device=drawn_T.device)
    label_T[len(train.values) :] = 0
    return torch.cat([train.owner, owner_T]), torch.cat([train.values, drawn_T]), label_T

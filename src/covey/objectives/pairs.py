"""Objectives on single items and on pairs of items: binary cross-entropy, BPR, and no objective."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import NO_HISTORY, Model, rows
from covey.core import Fields, Ragged, Rng, positive
from covey.core.sampling import negatives
from covey.mechanism import Batch, Examples, Objective

Reduction = Literal["mean", "sum"]


def positives_and_negatives(
    items: Ragged, avoid: Ragged, n_items: int, count: int, rng: Rng
) -> Examples:
    """Examples of positives, each followed by `count` negatives; any that lack have weight 0."""
    drawn_TK, exists_TK = negatives(avoid, n_items, items.lengths, count, rng)
    values = torch.cat([items.values[:, None], drawn_TK], 1).flatten()
    label = torch.zeros(len(items.values), count + 1, device=values.device)
    label[:, 0] = 1
    weight = torch.cat([torch.ones_like(label[:, :1]), exists_TK.to(label)], 1)
    return Examples(Ragged(values, items.offsets * (count + 1)), label.flatten(), weight.flatten())


@dataclass(frozen=True)
class Bce(Objective):
    """Binary cross-entropy on positives and sampled negatives.

    `saturating` computes it from probabilities and not from logits, as published code does: a
    saturated wrong prediction then has almost no gradient.
    """

    negatives: int = 4
    saturating: bool = False
    reduction: Reduction = "mean"
    pointwise: bool = True

    def __post_init__(self) -> None:
        positive("objective", negatives=self.negatives)

    def examples(self, items: Ragged, avoid: Ragged, n_items: int, rng: Rng) -> Examples:
        return positives_and_negatives(items, avoid, n_items, self.negatives, rng)

    def loss(
        self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None
    ) -> Tensor:
        z_CL = batch.with_offset(self.logits(model, params, batch, ready, rng, u))
        y_CL, w_CL = batch.label_CL.to(z_CL), batch.weight_CL.to(z_CL)
        if self.saturating:
            loss_CL = F.binary_cross_entropy(z_CL.sigmoid(), y_CL, reduction="none")
        else:
            loss_CL = F.binary_cross_entropy_with_logits(z_CL, y_CL, reduction="none")
        # Faster than the `weight` argument, for which torch checks shapes in Python.
        loss_C = (loss_CL * w_CL).sum(1)
        return loss_C / w_CL.sum(1).clamp(min=1) if self.reduction == "mean" else loss_C

    def logits(
        self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None
    ) -> Tensor:
        """The model's scores of the examples, [C, L]."""
        u = model.user(params, NO_HISTORY, rng, True) if u is None else u
        v_CLD = params["items"] if batch.index_CL is None else rows(params["items"], batch.index_CL)
        return model.score(params, u, v_CLD)


@dataclass(frozen=True)
class Bpr(Objective):
    """Pairwise ranking (Rendle et al., 2009): each positive above each of its sampled negatives."""

    negatives: int = 1
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        positive("objective", negatives=self.negatives)

    def examples(self, items: Ragged, avoid: Ragged, n_items: int, rng: Rng) -> Examples:
        made = positives_and_negatives(items, avoid, n_items, self.negatives, rng)
        slot = items.place.repeat_interleave(self.negatives + 1)
        return Examples(made.items, made.label, made.weight, slot)

    def loss(
        self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None
    ) -> Tensor:
        u = model.user(params, NO_HISTORY, rng, True) if u is None else u
        assert batch.index_CL is not None
        z_CL = batch.with_offset(model.score(params, u, rows(params["items"], batch.index_CL)))
        step = self.negatives + 1
        wide = z_CL.shape[1] // step * step  # examples come as one positive and its negatives
        z_CPS = z_CL[:, :wide].unflatten(1, (-1, step))
        w_CPK = batch.weight_CL[:, :wide].unflatten(1, (-1, step))[..., 1:].to(z_CL)
        # What a mechanism appended does not form pairs.
        w_CPK = w_CPK * batch.label_CL[:, :wide:step, None].to(z_CL)
        loss_CPK = -F.logsigmoid(z_CPS[..., :1] - z_CPS[..., 1:])
        loss_C = (loss_CPK * w_CPK).sum((1, 2))
        return loss_C / w_CPK.sum((1, 2)).clamp(min=1) if self.reduction == "mean" else loss_C


@dataclass(frozen=True)
class NoObjective(Objective):
    """For methods that only report and train nothing."""

    pointwise: ClassVar[bool] = True

    def examples(self, items: Ragged, avoid: Ragged, n_items: int, rng: Rng) -> Examples:
        none = torch.zeros(0, device=items.values.device)
        return Examples(Ragged(items.values[:0], torch.zeros_like(items.offsets)), none, none)

    def loss(
        self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None
    ) -> Tensor:
        return params["items"].new_zeros(len(batch.label_CL))

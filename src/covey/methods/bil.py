"""BIL: batch-insensitive losses with spreadout (Ning et al., 2021, arXiv 2108.07931).

Clients learn from positives alone: a hinge on the cosine of the user's and the item's vector.
A regulariser keeps the items' vectors apart; it needs no data, so the server applies it, as in
FedAwS (Yu et al., 2020).
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core import CoveyError, Fields, Ragged, Rng, positive, share
from covey.mechanism import Batch, Examples, History, Mechanism, Model, Objective, ServerView, rows
from covey.models.bert4rec import cloze
from covey.objectives.next_item import HIDE_LAST, NextItemSoftmax
from covey.objectives.pairs import Reduction


@dataclass(frozen=True)
class PositiveHinge(Objective):
    """max(0, margin - cos(u, v))^2 over a client's positives, each the next item of its sequence.

    There are no negatives, so the loss of an example does not depend on the other examples. Rank by
    the cosine too (`model.cosine = true`): the norms of item vectors are not trained as scores.
    """

    margin: float = 0.9
    last: int = 200  # newest items that are trained on
    hide: float = 0.0  # over 0: items hidden with this probability instead of next ones (BERT4Rec)
    reduction: Reduction = "mean"
    sequential: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive("objective", last=self.last)
        share("objective", hide=self.hide)
        if not -1 < self.margin <= 1:
            wrong = f"objective: margin = {self.margin}; it is a cosine, over -1 and at most 1"
            raise CoveyError(wrong)

    def examples(self, items: Ragged, avoid: Ragged, n_items: int, rng: Rng) -> Examples:
        return self._sequence.examples(items, avoid, n_items, rng)

    def prepare(self, batch: Batch) -> Fields:
        ready = self._sequence.prepare(batch)
        return {k: ready[k] for k in ("sequence", "mask")}

    def loss(
        self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None
    ) -> Tensor:
        sequence_CP, mask_CP = ready["sequence"], ready["mask"]
        hidden_CP = cloze(mask_CP, self.hide, HIDE_LAST, rng) if self.hide else None
        if u is None:
            u = model.user(params, History(sequence_CP, mask_CP, hidden_CP), rng, True)
        mask_CP = mask_CP if hidden_CP is None else hidden_CP
        u_CPD = u if u.dim() == 3 else u[:, None]
        v_CPD = rows(params["items"], sequence_CP)
        short_CP = (self.margin - F.cosine_similarity(u_CPD, v_CPD, dim=-1)).clamp(min=0)
        loss_C = (short_CP.square() * mask_CP).sum(1)
        return loss_C / mask_CP.sum(1).clamp(min=1) if self.reduction == "mean" else loss_C

    @property
    def _sequence(self) -> NextItemSoftmax:
        return NextItemSoftmax(stored=0, local=0, last=self.last)


@dataclass(frozen=True)
class Spreadout(Mechanism):
    """Adds the weighted gradient of the spread of all item vectors to the server's step."""

    weight: float = 0.4  # lambda, times 1 / R of random vectors if `relative`
    relative: bool = True  # R grows with the catalogue, and so would the effect of a fixed lambda
    name: str = "spreadout"

    def __post_init__(self) -> None:
        if not self.weight >= 0:
            raise CoveyError(f"{self.name}: weight = {self.weight}; it is at least 0")

    def adjust_update(self, view: ServerView, update: Fields) -> Fields:
        if "items" not in update or not self.weight:
            return update
        items_ID = view.public["items"].detach().requires_grad_()
        with torch.enable_grad():
            (slope_ID,) = torch.autograd.grad(spread(items_ID), items_ID)
        return {**update, "items": update["items"] - self.rate(*items_ID.shape) * slope_ID}

    def rate(self, n_items: int, dim: int) -> float:
        """The factor of R in the loss."""
        random = math.sqrt(max(n_items * (n_items - 1), 1) / dim)  # R of random unit vectors
        return self.weight / random if self.relative else self.weight


def spread(items_ID: Tensor) -> Tensor:
    """R = ||Z Z'|| without its diagonal for unit rows Z, by ||Z' Z||, in O(I D^2)."""
    z_ID = F.normalize(items_ID, dim=1)
    own_I = z_ID.square().sum(1)
    square = (z_ID.mT @ z_ID).square().sum() - own_I.square().sum()
    return square.clamp(min=1e-12).sqrt()

"""Objectives on sequences: predict the next item or hidden items, among all items or sampled ones.

FedCL's Eq. 1 with its three kinds of negatives is `covey.objectives:NextItemSoftmax`.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core import Fields, Ragged, Rng, positive, share
from covey.core.sampling import negatives
from covey.mechanism import Batch, Examples, History, Model, Objective
from covey.models.bert4rec import cloze
from covey.models.catalogue import catalogue_nll

from .next_item import NextItemSoftmax
from .pairs import Reduction


class WholeCatalogue(Objective):
    """An objective on the items of a list, among all items; its gradient moves every item row."""

    last: int  # newest items that are trained on
    reduction: Reduction
    sequential: ClassVar[bool] = True
    whole_table: ClassVar[bool] = True

    def examples(self, items: Ragged, avoid: Ragged, n_items: int, rng: Rng) -> Examples:
        return NextItemSoftmax(local=0, last=self.last).examples(items, avoid, n_items, rng)

    def prepare(self, batch: Batch) -> Fields:
        index_CP, slot_CP = batch.index_CL, batch.slot_CL
        assert index_CP is not None and slot_CP is not None
        mask_CP = (batch.label_CL == 1) & (slot_CP >= 0) & (batch.weight_CL > 0)
        return {"sequence": torch.where(mask_CP, index_CP, 0), "mask": mask_CP}

    def hidden(self, mask_CP: Tensor, rng: Rng) -> Tensor | None:
        """Items that are hidden and predicted from the others; None to predict each next item."""
        return None

    def loss(
        self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None
    ) -> Tensor:
        sequence_CP, mask_CP = ready["sequence"], ready["mask"]
        hidden_CP = self.hidden(mask_CP, rng)
        if u is None:
            u = model.user(params, History(sequence_CP, mask_CP, hidden_CP), rng, True)
        learnt_CP = mask_CP if hidden_CP is None else hidden_CP
        loss_C = torch.where(learnt_CP, _nll(model, params, u, sequence_CP), 0).sum(1)
        return loss_C / learnt_CP.sum(1).clamp(min=1) if self.reduction == "mean" else loss_C


@dataclass(frozen=True)
class CrossEntropy(WholeCatalogue):
    """Predicts each next item of the list among all items."""

    last: int = 200  # newest items that are trained on
    reduction: Reduction = "sum"  # over positions

    def __post_init__(self) -> None:
        positive("objective", last=self.last)


@dataclass(frozen=True)
class MaskedItem(WholeCatalogue):
    """Predicts hidden items of the list among all items (BERT4Rec)."""

    hide: float = 0.4  # share of items that are hidden, one at least
    end: float = 0.1  # how often only the last item is hidden
    last: int = 200  # newest items that are trained on
    reduction: Reduction = "sum"  # over hidden items

    def __post_init__(self) -> None:
        positive("objective", last=self.last)
        share("objective", hide=self.hide, end=self.end)

    def hidden(self, mask_CP: Tensor, rng: Rng) -> Tensor | None:
        return cloze(mask_CP, self.hide, self.end, rng)


@dataclass(frozen=True)
class SampledSoftmax(Objective):
    """Predicts each next item against sampled items, which are the same at all positions."""

    negatives: int = 256  # that the client does not have, drawn in each participation
    last: int = 200  # newest items that are trained on
    hide: float = 0.0  # over 0: hide this share of the items and predict these
    sequential: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive("objective", negatives=self.negatives)
        _ = self._softmax  # checks the options that it shares

    @property
    def _softmax(self) -> NextItemSoftmax:
        return NextItemSoftmax(local=0, last=self.last, hide=self.hide)

    def examples(self, items: Ragged, avoid: Ragged, n_items: int, rng: Rng) -> Examples:
        listed = self._softmax.examples(items, avoid, n_items, rng)
        once_C = (items.lengths > 0).long()  # a client without items needs no negatives
        many, rng = min(self.negatives, n_items), rng.fold("sampled")
        drawn_CK, exists_CK = negatives(avoid, n_items, once_C, many, rng)
        lengths_C = torch.zeros_like(once_C)
        lengths_C[once_C > 0] = exists_CK.sum(1)
        drawn = Ragged(drawn_CK[exists_CK], F.pad(lengths_C.cumsum(0), (1, 0)))
        return listed.append(drawn, torch.zeros(len(drawn.values), device=drawn.values.device))

    def prepare(self, batch: Batch) -> Fields:
        return self._softmax.prepare(batch)

    def loss(
        self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None
    ) -> Tensor:
        return self._softmax.loss(model, params, batch, ready, rng, u)


def _nll(model: Model, params: Fields, u: Tensor, sequence_CP: Tensor) -> Tensor:
    """-log softmax of a sequence's items among all items, [C, P], if possible in bounded memory."""
    if u.dim() == 3 and not getattr(model, "cosine", False):
        return catalogue_nll(u, params["items"], sequence_CP)
    s = model.score(params, u, params["items"])
    s_CPI = s if s.dim() == 3 else s[:, None].expand(-1, sequence_CP.shape[1], -1)
    return s_CPI.logsumexp(2) - s_CPI.gather(2, sequence_CP[..., None]).squeeze(2)

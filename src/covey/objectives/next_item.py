"""The softmax of the next item of a sequence against sampled negatives (FedCL, Eq. 1)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from covey.core import CoveyError, Fields, Ragged, Rng, offsets_of, positive, share
from covey.core.sampling import distinct_ranks, negatives
from covey.mechanism import Batch, Examples, History, Model, Objective
from covey.models.bert4rec import cloze
from covey.models.candidates import candidates_nll

HIDE_LAST = 0.1  # how often only the last item is hidden, where items are


@dataclass(frozen=True)
class NextItemSoftmax(Objective):
    """Softmax of each next item of a sequence against negatives, summed over positions (Eq. 1).

    The negatives of a position are `local` of the client's `stored` fixed ones, the other items of
    the sequence if `in_batch`, and what mechanisms appended for all positions. An item that comes
    from two sources counts twice.
    """

    stored: int = 100
    local: int = 10
    in_batch: bool = False
    last: int = 200  # newest items that are trained on
    hide: float = 0.0  # over 0: items hidden with this probability instead of next ones (BERT4Rec)
    sequential: ClassVar[bool] = True

    @property
    def light(self) -> bool:
        return self.local > 0

    def __post_init__(self) -> None:
        positive("objective", last=self.last)
        share("objective", hide=self.hide)
        if not 0 <= self.local <= self.stored:
            wrong = f"local = {self.local} negatives are drawn from stored = {self.stored}"
            raise CoveyError(f"objective: {wrong}")

    def examples(self, items: Ragged, avoid: Ragged, n_items: int, rng: Rng) -> Examples:
        newest_T = items.lengths[items.owner] - items.place <= self.last
        recent = Ragged(items.values[newest_T], offsets_of(items.lengths.clamp(max=self.last)))
        ones = torch.ones(len(recent.values), device=recent.values.device)
        sequence = Examples(recent, ones, ones, recent.place)
        if not self.local:
            return sequence
        once, fixed = torch.ones_like(recent.lengths), rng.home("stored negatives")
        stored_CS, exists_CS = negatives(avoid, n_items, once, min(self.stored, n_items), fixed)
        size_T = exists_CS.sum(1).repeat_interleave(recent.lengths)
        unit = rng.fold("local").ragged_uniform(recent.lengths * self.local)
        column = distinct_ranks(unit.values.view(-1, self.local), size_T)  # of the stored ones
        exists_TL = torch.arange(self.local, device=size_T.device) < size_T[:, None]
        weight = exists_TL.flatten().to(ones)
        drawn = unit.like(stored_CS[unit.owner, column.flatten()])
        own = Examples(drawn, torch.zeros_like(weight), weight, unit.place // self.local)
        return Examples.of([sequence, own])

    def prepare(self, batch: Batch) -> Fields:
        index, slot, label, weight = batch.index_CL, batch.slot_CL, batch.label_CL, batch.weight_CL
        assert index is not None and slot is not None
        is_target = (label == 1) & (slot >= 0) & (weight > 0)
        # As wide as a list of this padded size can be: the width depends on the client alone.
        longest = min(index.shape[1] // (1 + self.local), self.last)
        wide = max(longest, int(is_target.sum(1).max()), 1)
        # A client's own items come first, in order.
        ready = {"sequence": index[:, :wide], "mask": is_target[:, :wide]}
        common = (label == 0) & (slot < 0) & (weight > 0)
        common = common | is_target if self.in_batch else common
        if self.in_batch or bool(common.any()):
            client = torch.arange(len(index), device=index.device)[:, None].expand_as(index)
            common_CR = torch.zeros(batch.items_CR.shape, device=index.device)
            place = (client[common], index[common])
            ready["common"] = common_CR.index_put_(place, weight[common].float(), accumulate=True)
        return {**ready, **self._drawn(batch, is_target.sum(1), wide)}

    def _drawn(self, batch: Batch, length_C: Tensor, wide: int) -> Fields:
        """Rows and weights of the negatives of each position, [C, P, local], after the items."""
        index, slot = batch.index_CL, batch.slot_CL
        assert index is not None and slot is not None
        tied = (batch.label_CL == 0) & (slot >= 0) & (batch.weight_CL > 0)
        place_CL = torch.arange(index.shape[1], device=index.device) - length_C[:, None]
        if bool((tied & (slot != place_CL.div(max(self.local, 1), rounding_mode="floor"))).any()):
            wrong = "objective: a mechanism moved negatives of single positions"
            raise CoveyError(f"{wrong}; it may only append others")
        at_CN = length_C[:, None] + torch.arange(wide * self.local, device=index.device)
        at_CN = at_CN.clamp(max=index.shape[1] - 1)
        index_CN, weight_CN = (x.gather(1, at_CN) for x in (index, batch.weight_CL * tied))
        shape = (wide, self.local)
        return {"own": index_CN.unflatten(1, shape), "own weight": weight_CN.unflatten(1, shape)}

    def loss(
        self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None
    ) -> Tensor:
        sequence_CP, mask_CP = ready["sequence"], ready["mask"]
        hidden_CP = cloze(mask_CP, self.hide, HIDE_LAST, rng) if self.hide else None
        if u is None:
            u = model.user(params, History(sequence_CP, mask_CP, hidden_CP), rng, True)
        s_CPR = model.score(params, u, params["items"])
        if s_CPR.dim() == 2:
            s_CPR = s_CPR[:, None].expand(-1, sequence_CP.shape[1], -1)
        own, common_CR = (ready["own"], ready["own weight"]), ready.get("common")
        nll_CP = candidates_nll(s_CPR, sequence_CP, *own, common_CR)
        return (nll_CP * (mask_CP if hidden_CP is None else hidden_CP)).sum(1)

"""UNION's contrastive task against untargeted attacks (Yu et al., AAAI 2023).
Each item of a user is to be nearer to another item of that user than to items that the user does
not have. In the paper it keeps benign tables spread, so that a filter on the server can recognise
others: `covey.defenses.union`.

Shape suffixes: P = positives of a client, K = negatives of each, X = anchor, partner, negatives.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.core import Fields, Ragged, offsets_of, positive
from covey.core.sampling import negatives
from covey.mechanism import ClientView, Examples, rows

from .weighted import WeightedLoss

EXCLUDED = -1e9  # finite: a client that knows nearly every item has fewer negatives


@dataclass(frozen=True)
class UnionTask(WeightedLoss):
    """Partners and negatives are drawn in each participation; a user's only item has no partner."""

    weight: float = 1.0  # alpha
    negatives: int = 15  # K
    name: str = "union task"

    def __post_init__(self) -> None:
        positive(self.name, negatives=self.negatives)
        super().__post_init__()

    def _draw(self, view: ClientView) -> tuple[Tensor, Tensor, Tensor]:
        """The partner [T] and negatives [T, K] of each positive, the same at every call."""
        items = view.data.items
        n_T = items.lengths.repeat_interleave(items.lengths)
        unit_T = view.rng.fold("partner").ragged_uniform(items.lengths).values
        step_T = 1 + torch.minimum((unit_T * (n_T - 1)).long(), (n_T - 2).clamp(min=0))
        place_T = (items.place + step_T) % n_T.clamp(min=1)
        partner_T = items.values[items.offsets[:-1].repeat_interleave(items.lengths) + place_T]
        avoid, n_items, rng = view.data.avoid, view.catalogue.n_items, view.rng.fold("negatives")
        return partner_T, *negatives(avoid, n_items, items.lengths, self.negatives, rng)

    def augment(self, view: ClientView, examples: Examples) -> Examples:
        """Adds the negatives to the local table, with weight 0 in the recommendation loss."""
        if not self.weight:
            return examples
        items, (_, drawn_TK, exists_TK) = view.data.items, self._draw(view)
        wanted_TK = exists_TK & (items.lengths > 1)[items.owner][:, None]
        owner_TK = items.owner[:, None].expand_as(wanted_TK)
        lengths = torch.bincount(owner_TK[wanted_TK], minlength=len(items))
        none = examples.label.new_zeros(int(wanted_TK.sum()))
        return examples.append(Ragged(drawn_TK[wanted_TK], offsets_of(lengths)), none, none)

    def prepare(self, view: ClientView) -> Fields:
        assert view.batch is not None
        partner_T, drawn_TK, exists_TK = self._draw(view)
        items = view.data.items
        wide = max(1, int(items.lengths.max()) if len(items) else 0)
        every_TX = torch.cat([items.values[:, None], partner_T[:, None], drawn_TK], 1)
        every_CPX, exists_CPK = (items.like(x).padded(wide) for x in (every_TX, exists_TK))
        known_CR = view.batch.items_CR.masked_fill(~view.batch.real_CR, view.catalogue.n_items)
        index_CX = torch.searchsorted(known_CR.contiguous(), every_CPX.flatten(1))
        index_CX = index_CX.clamp(max=known_CR.shape[1] - 1)
        some_CP = items.mask(every_CPX.shape[1]) & (items.lengths > 1)[:, None]
        return {"index": index_CX.view(every_CPX.shape), "exists": exists_CPK, "anchors": some_CP}

    def loss(self, view: ClientView) -> Tensor | None:
        ready = view.prepared
        index_CPX = ready["index"]
        v_CPXD = rows(view.params["items"], index_CPX.flatten(1)).unflatten(1, index_CPX.shape[1:])
        return self.weight * task(v_CPXD, ready["exists"], ready["anchors"])


def task(v_CPXD: Tensor, exists_CPK: Tensor, anchors_CP: Tensor) -> Tensor:
    """The mean over anchors of -log softmax at the partner, [C]."""
    score_CPX = (v_CPXD[:, :, :1] * v_CPXD[:, :, 1:]).sum(3)
    real_CPX = torch.cat([torch.ones_like(exists_CPK[..., :1]), exists_CPK], 2)
    score_CPX = score_CPX.masked_fill(~real_CPX, EXCLUDED)
    each_CP = (score_CPX.logsumexp(2) - score_CPX[..., 0]).where(anchors_CP, 0)
    # One after the other, so that a sum does not depend on the length of other clients' lists.
    return each_CP.cumsum(1)[:, -1] / anchors_CP.sum(1).clamp(min=1)

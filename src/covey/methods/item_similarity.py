"""Item similarity, a simpler alternative to CoFedRec's contrast (He et al., WWW 2024, Eq. 10, 11).

It pulls each of a client's items to the others of its category and pushes nothing away.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from covey.contract.views import ClientView
from covey.core.ragged import Fields

from .supcon import members, others
from .weighted import WholeTableLoss


@dataclass(frozen=True)
class ItemSimilarity(WholeTableLoss):
    """The categories come from CoFedRec's `ItemCategories` or `CoClusters`."""

    weight: float = 0.005  # lambda
    name: str = "item similarity"
    listens: str = "item categories"

    def prepare(self, view: ClientView) -> Fields:
        category_I = view.received.shared.get("category")
        if category_I is None:
            return {}
        items = view.data.items
        mine_CI = view.params["items"].new_zeros(len(items), len(category_I))
        share_T = (1 / items.lengths.clamp(min=1)).repeat_interleave(items.lengths).to(mine_CI)
        mine_CI.index_put_((items.owner, items.values), share_T, accumulate=True)
        return {"member": members(category_I), "mine": mine_CI}

    def loss(self, view: ClientView) -> Tensor | None:
        member_KI = view.prepared.get("member")
        table_CID = view.params["items"]
        if member_KI is None or not table_CID.requires_grad:  # it moves nothing but items
            return None
        return self.weight * similar(table_CID, member_KI, view.prepared["mine"])  # Eq. 11


def similar(table_CID: Tensor, member_KI: Tensor, mine_CI: Tensor) -> Tensor:
    """Eq. 10, [C]: minus the mean cosine of a client's items to the others of their category."""
    unit_CID = F.normalize(table_CID, dim=-1)
    n_I, others_CID = others(unit_CID, member_KI)
    return -(mine_CI / n_I.clamp(min=1) * (unit_CID * others_CID).sum(-1)).sum(1)

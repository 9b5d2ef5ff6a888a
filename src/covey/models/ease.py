"""Item-to-item weights (EASE, Steck, 2019): a user's scores are the sum of the weight rows of the user's items.

`items` holds each item's own number, by which a score is looked up among the user's; so candidates can
be shared or sampled. Shape suffix: I = items.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import History
from covey.core.ragged import Fields
from covey.core.rng import Rng

from .lists import ListModel


@dataclass(frozen=True)
class ItemWeights(ListModel):
    shared: tuple[str, ...] = ("items", "weight")
    tuned: tuple[str, ...] = ()

    def public(self, n_items: int, rng: Rng) -> Fields:
        return {
            "items": torch.arange(n_items).float()[:, None],
            "weight": torch.zeros(n_items, n_items),
        }

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        """The scores of all items, [C, I]: one row after the other, each item of the list once."""
        first_CP = history.mask_CP & ~_again(history)
        weight_II = params["weight"][0]
        index_T, length_C = history.index_CP[first_CP], first_CP.sum(1)
        return F.embedding_bag(
            index_T, weight_II, F.pad(length_C.cumsum(0), (1, 0))[:-1], mode="sum"
        )

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        number_CL = v_CLD[..., 0].long().expand(len(u), -1)
        return u.gather(1, number_CL)


def _again(history: History) -> Tensor:
    """Where an item stands that stood earlier in the list, [C, P]."""
    far = int(history.index_CP.max()) + 1 if history.index_CP.numel() else 1
    order = torch.where(history.mask_CP, history.index_CP, far).sort(dim=1, stable=True)
    twice_CP = F.pad(order.values[:, 1:] == order.values[:, :-1], (1, 0))
    return torch.zeros_like(twice_CP).scatter(1, order.indices, twice_CP)

"""Item-to-item weights (EASE, Steck, 2019): a user's scores are the sum of the user's items' rows.

`items` holds the number of each item, by which a score is looked up among the user's scores, so
that candidates can be shared or sampled. Shape suffix: I = items.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import History
from covey.core import Fields, Rng

from .lists import ListModel, first_places


@dataclass(frozen=True)
class ItemWeights(ListModel):
    """A linear model on the user's items with a matrix `weight`, [I, I]."""

    shared: tuple[str, ...] = ("items", "weight")
    tuned: tuple[str, ...] = ()

    def public(self, n_items: int, rng: Rng) -> Fields:
        number_I1 = torch.arange(n_items).float()[:, None]
        return {"items": number_I1, "weight": torch.zeros(n_items, n_items)}

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        """The scores of all items, [C, I]: one row after the other, each item of the list once."""
        first_CP = first_places(history)
        index_T, length_C = history.index_CP[first_CP], first_CP.sum(1)
        start_C = F.pad(length_C.cumsum(0), (1, 0))[:-1]
        return F.embedding_bag(index_T, params["weight"][0], start_C, mode="sum")

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        return u.gather(1, v_CLD[..., 0].long().expand(len(u), -1))

"""A linear recommender of low rank, from the leading subspace of the interactions.

It is PureSVD (Cremonesi et al., 2010) of interactions that are normalised by powers of the degrees
of users and items, as in graph filters (GF-CF, Shen et al., 2021). `items` is the basis times a
power of the item degrees, `weight` undoes that on the side of the user's own items, and `filter` is
the gain of each direction.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import History, rows
from covey.core import CoveyError, Fields, Rng, positive

from .lists import ListModel


@dataclass(frozen=True)
class Spectral(ListModel):
    """A user's scores are the user's normalised row, filtered in the basis of the subspace."""

    rank: int = 64
    shared: tuple[str, ...] = ("items", "weight", "filter")
    tuned: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        positive("model", rank=self.rank)

    def public(self, n_items: int, rng: Rng) -> Fields:
        items_ID = rng.fold("items").normal(n_items, self.rank)[0]
        return {"items": items_ID, "weight": torch.ones(n_items), "filter": torch.ones(self.rank)}

    def check(self, n_items: int) -> None:
        if self.rank > n_items:
            wrong = f"model.rank = {self.rank} but there are {n_items} items"
            raise CoveyError(f"{wrong}; set model.rank to at most {n_items}")

    def listed(self, params: Fields, history: History) -> Tensor:
        """The user's normalised row times the basis, [C, D]."""
        if len(params["items"]) > 1:  # each client has its own table
            weight_CP = rows(params["weight"][..., None], history.index_CP).squeeze(2)
            v_CPD = rows(params["items"], history.index_CP)
            return ((weight_CP * history.mask_CP)[:, None] @ v_CPD).squeeze(1)
        index_T, length_C = history.index_CP[history.mask_CP], history.mask_CP.sum(1)
        start_C, weight_T = F.pad(length_C.cumsum(0), (1, 0))[:-1], params["weight"][0][index_T]
        return F.embedding_bag(
            index_T, params["items"][0], start_C, mode="sum", per_sample_weights=weight_T
        )

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        return self.listed(params, history) * params["filter"]

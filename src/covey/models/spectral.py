"""A linear recommender from the leading subspace of the interactions (PureSVD, Cremonesi et al., 2010).

The interaction matrix is normalised by the degrees of users and items, as graph filters do (GF-CF,
Shen et al., 2021). `items` is the basis times the square root of the item degrees.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core import Fields, positive
from ..rng import Rng
from .base import History, dot, rows


@dataclass(frozen=True)
class Spectral:
    rank: int = 64
    shared: tuple[str, ...] = ("items", "degree")
    kept: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()
    uploaded: tuple[str, ...] = ()
    tables: tuple[str, ...] = ("items",)
    sequential: ClassVar[bool] = True
    stochastic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive("model", rank=self.rank)

    def public(self, n_items: int, rng: Rng) -> Fields:
        return {"items": rng.fold("items").normal(n_items, self.rank)[0], "degree": torch.ones(n_items)}

    def private(self, rng: Rng, start: Rng) -> Fields:
        return {}

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        """The user's normalised row times the basis."""
        degree_CP = rows(params["degree"][..., None], history.index_CP).squeeze(2)
        return (history.mask_CP[:, None] / degree_CP[:, None] @ rows(params["items"], history.index_CP)).squeeze(1)

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        return dot(u, v_CLD)

"""Matrix factorisation: the logit is an inner product of a private user and a shared item vector."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..core import Fields, positive
from ..rng import Rng
from .base import History, dot


@dataclass(frozen=True)
class MF:
    dim: int = 32
    scale: float = 0.1  # standard deviation of the start
    tuned: tuple[str, ...] = ()
    shared: tuple[str, ...] = ("items",)
    kept: tuple[str, ...] = ("user",)
    uploaded: tuple[str, ...] = ()
    tables: tuple[str, ...] = ("items",)
    sequential: ClassVar[bool] = False
    stochastic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive("model", dim=self.dim)

    def public(self, n_items: int, rng: Rng) -> Fields:
        return {"items": self.scale * rng.fold("items").normal(n_items, self.dim)[0]}

    def private(self, rng: Rng, start: Rng) -> Fields:
        return {"user": self.scale * rng.normal(self.dim)}

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        return params["user"]

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        return dot(u, v_CLD)

"""Matrix factorisation: the logit is an inner product of a private user and a shared item vector."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from covey.contract.model import History
from covey.core.checks import positive
from covey.core.ragged import Fields
from covey.core.rng import Rng

from .base import cosine, dot


@dataclass(frozen=True)
class MF:
    dim: int = 32
    scale: float = 0.1  # standard deviation of the start
    cosine: bool = False  # scores are cosines, not inner products
    keep_items: bool = (
        False  # the item table stays on the device and is uploaded as a model (CoFedRec)
    )
    tuned: tuple[str, ...] = ()
    tables: tuple[str, ...] = ("items",)
    sequential: ClassVar[bool] = False
    stochastic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive("model", dim=self.dim)

    @property
    def shared(self) -> tuple[str, ...]:
        return () if self.keep_items else ("items",)

    @property
    def kept(self) -> tuple[str, ...]:
        return ("user", "items") if self.keep_items else ("user",)

    @property
    def uploaded(self) -> tuple[str, ...]:
        return ("items",) if self.keep_items else ()

    def public(self, n_items: int, rng: Rng) -> Fields:
        return {"items": self.scale * rng.fold("items").normal(n_items, self.dim)[0]}

    def private(self, rng: Rng, start: Rng) -> Fields:
        return {"user": self.scale * rng.normal(self.dim)}

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        return params["user"]

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        return cosine(u, v_CLD) if self.cosine else dot(u, v_CLD)

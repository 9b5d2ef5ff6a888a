"""PFedRec's model: a personal linear score function over item vectors; it plays the user vector."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from covey.contract.model import History
from covey.core.checks import positive
from covey.core.ragged import Fields
from covey.core.rng import Rng

from .base import dot, uniform_fan_in


@dataclass(frozen=True)
class LinearScore:
    """`keep_items` keeps the item table on the device and uploads it as a model (CoFedRec, local)."""

    dim: int = 32
    scale: float = 1.0
    keep_items: bool = False
    upload_items: bool = True
    tuned: tuple[str, ...] = ("items",)
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
        return ("score", "bias", *(("items",) if self.keep_items else ()))

    @property
    def uploaded(self) -> tuple[str, ...]:
        return ("items",) if self.keep_items and self.upload_items else ()

    def public(self, n_items: int, rng: Rng) -> Fields:
        return {"items": self.scale * rng.fold("items").normal(n_items, self.dim)[0]}

    def private(self, rng: Rng, start: Rng) -> Fields:
        """Everybody starts equal: the averaged table makes sense only along a common direction."""
        many = len(rng.key_C)
        return {
            "score": uniform_fan_in(start.fold("score"), self.dim, self.dim)
            .expand(many, -1)
            .clone(),
            "bias": uniform_fan_in(start.fold("bias"), self.dim, 1).expand(many, -1).clone(),
        }

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        return params["score"]

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        return dot(u, v_CLD) + params["bias"]

"""PFedRec's model: each user has a linear score function of item vectors."""

from dataclasses import dataclass

from torch import Tensor

from covey.contract.model import History
from covey.core import Fields, Rng

from .base import FactorModel, dot, uniform_fan_in


@dataclass(frozen=True)
class LinearScore(FactorModel):
    """The weights of a personal linear layer play the user vector; `keep_items` is as in `MF`."""

    dim: int = 32
    scale: float = 1.0
    keep_items: bool = False
    upload_items: bool = True
    tuned: tuple[str, ...] = ("items",)

    @property
    def kept(self) -> tuple[str, ...]:
        return ("score", "bias", *self.own_items)

    @property
    def uploaded(self) -> tuple[str, ...]:
        return self.own_items if self.upload_items else ()

    def private(self, rng: Rng, start: Rng) -> Fields:
        """All clients start equal: an average table is meaningful only along a common direction."""
        widths = {"score": self.dim, "bias": 1}
        one = {k: uniform_fan_in(start.fold(k), self.dim, n) for k, n in widths.items()}
        return {k: v.expand(len(rng.key_C), -1).clone() for k, v in one.items()}

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        return params["score"]

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        return dot(u, v_CLD) + params["bias"]

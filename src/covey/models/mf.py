"""Matrix factorisation: a logit is the inner product of a private user and a shared item vector."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import pad

from covey.contract.model import History
from covey.core import Fields, Rng

from .base import FactorModel, cosine, dot


@dataclass(frozen=True)
class MF(FactorModel):
    """Matrix factorisation; `keep_items` keeps the item table on the device, as CoFedRec does."""

    dim: int = 32
    scale: float = 0.1  # standard deviation of the start
    cosine: bool = False  # scores are cosines, not inner products
    keep_items: bool = False  # the table stays on the device and is uploaded as a model
    tuned: tuple[str, ...] = ()
    bias: bool = False  # items have biases, which are added to the inner products
    upload_user: bool = False  # the server gets the user vector as it is, as FedFast needs

    @property
    def kept(self) -> tuple[str, ...]:
        return ("user", *self.own_items)

    def private(self, rng: Rng, start: Rng) -> Fields:
        return {"user": self.scale * rng.normal(self.dim)}

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        return pad(params["user"], (0, 1), value=1.0) if self.bias else params["user"]

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        return cosine(u, v_CLD) if self.cosine else dot(u, v_CLD)

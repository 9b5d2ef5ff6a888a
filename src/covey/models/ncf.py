"""Neural collaborative filtering: an MLP over the user's and the item's vector (He et al., 2017)."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from ..core import Fields, positive
from ..rng import Rng
from .base import History, linear, uniform_fan_in


@dataclass(frozen=True)
class NCF:
    """MLP [u, v] -> hidden -> 1 with ReLU; with dim 32 and hidden (32, 16) the widths are 64-32-16-1."""

    dim: int = 32
    hidden: tuple[int, ...] = (32, 16)
    scale: float = 0.01  # standard deviation of the embeddings' start
    tuned: tuple[str, ...] = ()
    kept: tuple[str, ...] = ("user",)
    uploaded: tuple[str, ...] = ()
    tables: tuple[str, ...] = ("items",)
    sequential: ClassVar[bool] = False
    stochastic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive("model", dim=self.dim, hidden=min(self.hidden, default=0))

    @property
    def shared(self) -> tuple[str, ...]:
        layers = range(len(self.hidden) + 1)
        return ("items", "user_half", *(f"w{k}" for k in layers), *(f"b{k}" for k in layers))

    def public(self, n_items: int, rng: Rng) -> Fields:
        params = {"items": self.scale * rng.fold("items").normal(n_items, self.dim)[0]}
        # The first layer is kept in two halves: the user's half is computed once per client.
        params["user_half"] = uniform_fan_in(rng.fold("user_half"), 2 * self.dim, self.dim, self.hidden[0])
        widths = (self.dim, *self.hidden, 1)
        for k, (a, b) in enumerate(pairwise(widths)):
            fan_in = 2 * self.dim if k == 0 else a
            params[f"w{k}"] = uniform_fan_in(rng.fold(f"w{k}"), fan_in, a, b)
            params[f"b{k}"] = uniform_fan_in(rng.fold(f"b{k}"), fan_in, b)
        return params

    def private(self, rng: Rng, start: Rng) -> Fields:
        return {"user": self.scale * rng.normal(self.dim)}

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        return params["user"]

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        if u.dim() == 3:
            raise ValueError("NCF has one vector per user, not one per position")
        half_CH = linear(u[:, None], params["user_half"], params["b0"])[:, 0]
        if v_CLD.shape[0] == params["w0"].shape[0] == len(u):
            h = torch.baddbmm(half_CH[:, None], v_CLD, params["w0"]).relu_()
        else:
            h = (v_CLD @ params["w0"] + half_CH[:, None]).relu_()
        last = len(self.hidden)
        for k in range(1, last):
            h = linear(h, params[f"w{k}"], params[f"b{k}"]).relu_()
        # One output: a product and a sum beat a batched matrix-vector product by far.
        return (h * params[f"w{last}"].mT).sum(-1) + params[f"b{last}"]

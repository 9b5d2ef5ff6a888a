"""Neural collaborative filtering (He et al., 2017): an MLP over user and item vectors."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from covey.contract.model import History
from covey.core import Fields, Rng, positive

from .base import FactorModel, linear, uniform_fan_in


@dataclass(frozen=True)
class NCF(FactorModel):
    """An MLP [u, v] -> hidden -> 1 with ReLU; dim 32 and hidden (32, 16) give 64-32-16-1.

    `keep_items` keeps the item table on the device and uploads it as a model (CoFedRec). `keep_mlp`
    keeps the MLP on the device and uploads nothing of it (GPFedRec); then all clients start equal.
    """

    dim: int = 32
    hidden: tuple[int, ...] = (32, 16)
    scale: float = 0.01  # standard deviation of the embeddings' start
    keep_items: bool = False
    keep_mlp: bool = False
    he: bool = False  # layers start as for ReLU (He et al., 2015), wider and with biases of 0
    tuned: tuple[str, ...] = ()
    upload_user: bool = False  # the server gets the user vector as it is, as FedFast needs

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("model", hidden=min(self.hidden, default=0))

    @property
    def shared(self) -> tuple[str, ...]:
        return super().shared if self.keep_mlp else (*super().shared, *self._layers())

    @property
    def kept(self) -> tuple[str, ...]:
        kept = ("user", *self.own_items)
        return (*kept, *self._layers()) if self.keep_mlp else kept

    def _layers(self) -> tuple[str, ...]:
        layers = range(len(self.hidden) + 1)
        return ("user_half", *(f"w{k}" for k in layers), *(f"b{k}" for k in layers))

    def public(self, n_items: int, rng: Rng) -> Fields:
        items = super().public(n_items, rng)
        return items if self.keep_mlp else items | self._mlp(rng)

    def _mlp(self, rng: Rng) -> Fields:
        # The first layer is kept in two halves: the user's half is computed once per client.
        wide, (D, H) = 6**0.5 if self.he else 1.0, (self.dim, self.hidden[0])
        params = {"user_half": wide * uniform_fan_in(rng.fold("user_half"), 2 * D, D, H)}
        for k, (a, b) in enumerate(pairwise((self.dim, *self.hidden, 1))):
            fan_in = 2 * self.dim if k == 0 else a
            params[f"w{k}"] = wide * uniform_fan_in(rng.fold(f"w{k}"), fan_in, a, b)
            params[f"b{k}"] = (0 if self.he else 1) * uniform_fan_in(rng.fold(f"b{k}"), fan_in, b)
        return params

    def private(self, rng: Rng, start: Rng) -> Fields:
        if not self.keep_mlp:
            return {"user": self.scale * rng.normal(self.dim)}
        one = {"user": self.scale * start.fold("user").normal(self.dim)[0], **self._mlp(start)}
        return {k: v.expand(len(rng.key_C), *v.shape).clone() for k, v in one.items()}

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

"""Neural collaborative filtering (He et al., 2017): MLP, GMF, and NeuMF, which has both.

In NeuMF the vectors of the GMF part stand behind those of the MLP, in the same rows.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from covey.contract.model import History
from covey.core import CoveyError, Fields, Rng, positive

from .base import FactorModel, dot, linear, uniform_fan_in


@dataclass(frozen=True)
class NCF(FactorModel):
    """An MLP [u, v] -> hidden -> 1 with ReLU; dim 32 and hidden (32, 16) give 64-32-16-1.

    `keep_items` keeps the item table on the device and uploads it as a model (CoFedRec). `keep_mlp`
    keeps the MLP on the device and uploads nothing of it (GPFedRec); then all clients start equal.
    `gmf` adds a GMF part of that width, a weighted inner product of vectors of its own (NeuMF);
    without hidden layers the model is GMF alone, of width `dim`.
    """

    dim: int = 32
    hidden: tuple[int, ...] = (32, 16)
    scale: float = 0.01  # standard deviation of the embeddings' start
    keep_items: bool = False
    keep_mlp: bool = False
    he: bool = False  # layers start as for ReLU (He et al., 2015), wider and with biases of 0
    tuned: tuple[str, ...] = ()
    upload_user: bool = False  # the server gets the user vector as it is, as FedFast needs
    gmf: int = 0  # width of the GMF part beside the MLP; 0 is without

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("model", hidden=min(self.hidden, default=1))
        if self.gmf < 0 or (self.gmf and not self.hidden):
            wrong = f"model: gmf = {self.gmf}, hidden = {list(self.hidden)}"
            raise CoveyError(
                f"{wrong}; GMF alone has hidden = [] and gmf = 0, and its width is dim"
            )

    @property
    def widths(self) -> tuple[int, int]:
        """How many numbers of a row are the MLP's, and how many behind them are the GMF part's."""
        return (self.dim, self.gmf) if self.hidden else (0, self.dim)

    @property
    def width(self) -> int:
        return sum(self.widths)

    @property
    def shared(self) -> tuple[str, ...]:
        return super().shared if self.keep_mlp else (*super().shared, *self._layers())

    @property
    def kept(self) -> tuple[str, ...]:
        kept = ("user", *self.own_items)
        return (*kept, *self._layers()) if self.keep_mlp else kept

    def _layers(self) -> tuple[str, ...]:
        layers, (mlp, gmf) = range(len(self.hidden) + 1), self.widths
        weights = ("user_half", *(f"w{k}" for k in layers)) if mlp else ()
        return (*weights, *(("w_gmf",) if gmf else ()), *(f"b{k}" for k in layers))

    def public(self, n_items: int, rng: Rng) -> Fields:
        items = super().public(n_items, rng)
        return items if self.keep_mlp else items | self._mlp(rng)

    def _mlp(self, rng: Rng) -> Fields:
        # The first layer is kept in two halves: the user's half is computed once per client.
        wide, (mlp, gmf), last = 6**0.5 if self.he else 1.0, self.widths, len(self.hidden)
        shapes, fan_in = {"user_half": (mlp, *self.hidden[:1])}, {"user_half": 2 * mlp}
        for k, (a, b) in enumerate(pairwise((mlp, *self.hidden, 1))):
            shapes |= {f"w{k}": (a, b), f"b{k}": (b,)}
            fan_in[f"w{k}"] = fan_in[f"b{k}"] = (a if k else 2 * mlp) + (gmf if k == last else 0)
        shapes["w_gmf"], fan_in["w_gmf"] = (gmf,), fan_in[f"w{last}"]
        params = {k: uniform_fan_in(rng.fold(k), fan_in[k], *shapes[k]) for k in self._layers()}
        return {k: (0 if self.he and k[0] == "b" else wide) * v for k, v in params.items()}

    def private(self, rng: Rng, start: Rng) -> Fields:
        if not self.keep_mlp:
            return {"user": self.scale * rng.normal(self.width)}
        one = {"user": self.scale * start.fold("user").normal(self.width)[0], **self._mlp(start)}
        return {k: v.expand(len(rng.key_C), *v.shape).clone() for k, v in one.items()}

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        return params["user"]

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        if u.dim() == 3:
            raise ValueError("NCF has one vector per user, not one per position")
        mlp, gmf = self.widths
        if not gmf:
            return self._mlp_score(params, u, v_CLD)
        z_CL = dot(u[:, mlp:] * params["w_gmf"], v_CLD[..., mlp:])
        if not mlp:
            return z_CL + params["b0"]
        return z_CL + self._mlp_score(params, u[:, :mlp], v_CLD[..., :mlp])

    def _mlp_score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
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

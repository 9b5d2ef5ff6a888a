"""Models of a user's own graph: the user, the user's items and, if any, neighbouring users.

The user's own vector is propagated over this graph. In training, the vector by which an item of the
list is scored leaves this item out, as if it were held out. Shape suffixes: P = items, K =
neighbours.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import History, rows
from covey.core import CoveyError, Fields, Rng, positive

from .base import uniform_fan_in
from .lists import ListModel, by_length

LAYERS = 3  # of propagation, all of them from the user's own graph, beside the vector itself
STEEP = 8.0  # largest logit of attention, so that leaving an item out stays exact enough
Nodes = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class LocalGraph(ListModel):
    """Mean propagation: u* = (u + 3 h) / 4, where h is the mean of the user's and the items'."""

    dim: int = 32
    scale: float = 0.1  # standard deviation of the start
    shared: tuple[str, ...] = ("items",)
    kept: tuple[str, ...] = ("user",)
    tuned: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        positive("model", dim=self.dim)

    @property
    def given(self) -> tuple[str, ...]:
        """What a client keeps because it was sent, so that training does not move it."""
        return self.kept[1:]

    def private(self, rng: Rng, start: Rng) -> Fields:
        return {"user": self.scale * rng.normal(self.dim)}

    def nodes(self, params: Fields, history: History) -> Nodes:
        """Items [C, P, D] and their weights, the weighted sum of other nodes and their weight."""
        v_CPD, u_CD = rows(params["items"], history.index_CP), params["user"]
        return v_CPD, history.mask_CP.to(v_CPD), u_CD, torch.ones_like(u_CD[:, 0])

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        """Vectors [C, D] of whole lists; in training [C, P, D], each without its own item."""
        if training:
            return self._propagated(params, history, True)
        wide, longest = 4 * params["items"].shape[2], history.index_CP.shape[1]
        return by_length(params, history, longest, self._propagated, lambda many: many * wide)

    def _propagated(self, params: Fields, history: History, without: bool = False) -> Tensor:
        v_CPD, weight_CP, rest_CD, rest_C = self.nodes(params, history)
        own_CPD, u = weight_CP[..., None] * v_CPD, params["user"]
        sum_, total = rest_CD + own_CPD.sum(1), rest_C + weight_CP.sum(1)
        if without:
            u, sum_, total = u[:, None], sum_[:, None] - own_CPD, total[:, None] - weight_CP
        return self._mixed(u, sum_, total)

    def _mixed(self, u: Tensor, sum_: Tensor, total: Tensor) -> Tensor:
        """The mean over the layers, from the weighted sum of the graph's nodes and their weight."""
        return (u + LAYERS * sum_ / total[..., None]) / (1 + LAYERS)


@dataclass(frozen=True)
class LightGCN(LocalGraph):
    """LightGCN (He et al., 2020) on the graph of a user and the user's n items.

    There odd layers are s = sum of the items / sqrt(n), and even layers are u again. The item that
    is scored is not in the graph and stays as it is. Without layers this is matrix factorisation.
    """

    layers: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers < 0:
            raise CoveyError(f"model: layers = {self.layers}; 0 is matrix factorisation")

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        return super().user(params, history, rng, training) if self.layers else params["user"]

    def nodes(self, params: Fields, history: History) -> Nodes:
        v_CPD, weight_CP, u_CD, one_C = super().nodes(params, history)
        return v_CPD, weight_CP, torch.zeros_like(u_CD), torch.zeros_like(one_C)

    def _mixed(self, u: Tensor, sum_: Tensor, total: Tensor) -> Tensor:
        odd = (self.layers + 1) // 2
        s = sum_ / total.clamp(min=1).sqrt()[..., None]
        return ((1 + self.layers - odd) * u + odd * s) / (1 + self.layers)


@dataclass(frozen=True)
class GraphAttention(LocalGraph):
    """Propagation by attention, also from received neighbours; one of zeros is none."""

    neighbours: int = 20  # that a client has room for
    shared: tuple[str, ...] = ("items", "w_items", "w_users", "attend")
    kept: tuple[str, ...] = ("user", "neighbours")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbours < 0:
            raise CoveyError(f"model: neighbours = {self.neighbours}; 0 is without them")

    def public(self, n_items: int, rng: Rng) -> Fields:
        D, params = self.dim, super().public(n_items, rng)
        params |= {k: torch.eye(D) + 0.01 * rng.fold(k).normal(D, D)[0] for k in self.shared[1:3]}
        return params | {"attend": uniform_fan_in(rng.fold("attend"), D, 2, D)}

    def private(self, rng: Rng, start: Rng) -> Fields:
        none = torch.zeros(len(rng.key_C), self.neighbours, self.dim, device=rng.key_C.device)
        return super().private(rng, start) | {"neighbours": none}

    def nodes(self, params: Fields, history: History) -> Nodes:
        """Logits are LeakyReLU(a . [W u, W n]), as in graph attention networks."""
        x_CKD = params["neighbours"].detach()
        h_CPD = rows(params["items"], history.index_CP) @ params["w_items"]
        u_C1D, x_CKD = params["user"][:, None] @ params["w_users"], x_CKD @ params["w_users"]
        user_C1 = (u_C1D * params["attend"][:, :1]).sum(-1)

        def weight(node_CND: Tensor) -> Tensor:
            logit_CN = user_C1 + (node_CND * params["attend"][:, 1:]).sum(-1)
            return F.leaky_relu(logit_CN, 0.2).clamp(max=STEEP).exp()

        own_C1, near_CK = weight(u_C1D), weight(x_CKD) * (params["neighbours"] != 0).any(-1)
        rest_CD = own_C1 * u_C1D[:, 0] + (near_CK[..., None] * x_CKD).sum(1)
        return h_CPD, weight(h_CPD) * history.mask_CP, rest_CD, own_C1[:, 0] + near_CK.sum(1)

"""FCF: federated collaborative filtering (Ammad-ud-din et al., 2019, arXiv 1901.09888).

Implicit ALS (Hu et al., 2008) in two halves: a client solves for its own factor in closed form, and
uploads the gradient of every item's factor; the server sums them and takes a step of Adam.

    J = sum_u sum_i c_ui (p_ui - x_u.y_i)^2 + lambda (sum_u |x_u|^2 + sum_i |y_i|^2)

with c_ui = 1 + alpha r_ui. Items that a client does not have count with p = 0 and c = 1: quadratic
forms in G = Y'Y. Shape suffixes: G = item tables (1, or one of each client), P = places of a list.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from covey.aggregate.step import Adam
from covey.core import FieldDict, Fields, Ragged, Rng, positive
from covey.mechanism import Batch, Examples, History, Model, Objective, ServerStep, rows
from covey.models.lists import ListModel, first_places


@dataclass(frozen=True)
class ImplicitMF(ListModel):
    """The user's factor is computed from the user's list, so nothing else is private."""

    dim: int = 32  # K
    alpha: float = 1.0  # confidence in an interaction, beyond the 1 that everything has
    weight: float = 1.0  # lambda, of the user's factor
    scale: float = 0.1  # standard deviation of the start
    shared: tuple[str, ...] = ("items",)
    tuned: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        positive("model", dim=self.dim, alpha=self.alpha, weight=self.weight)

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        """x_u = (Y' C Y + lambda I)^-1 Y' C p, where Y' C Y is G + alpha times the list's Gram."""
        v_CPD = rows(params["items"], history.index_CP) * history.mask_CP[..., None]
        outer_CDD = self.alpha * (v_CPD.mT @ v_CPD)
        eye_DD = torch.eye(self.dim, dtype=v_CPD.dtype, device=v_CPD.device)
        left_CDD = gram(params["items"]) + outer_CDD + self.weight * eye_DD
        c_CP = self.alpha + first_places(history).to(v_CPD)  # sums to c_ui over an item's places
        right_CD1 = v_CPD.mT @ c_CP[..., None]
        factor_CDD, _ = torch.linalg.cholesky_ex(left_CDD)  # not finite if the matrix is not
        return torch.cholesky_solve(right_CD1, factor_CDD)[..., 0]


@dataclass(frozen=True)
class ImplicitSquares(Objective):
    """A client's part of J as a function of the items; its gradient by the solved x_u is zero."""

    sequential: ClassVar[bool] = True
    whole_table: ClassVar[bool] = True  # items that a client does not have move too

    def examples(self, items: Ragged, avoid: Ragged, n_items: int, rng: Rng) -> Examples:
        ones_T = torch.ones(len(items.values), device=items.values.device)
        return Examples(items, ones_T, ones_T, items.place)

    def prepare(self, batch: Batch) -> Fields:
        """Leaves out what mechanisms appended to the list."""
        assert batch.index_CL is not None and batch.slot_CL is not None
        own_CL = (batch.weight_CL > 0) & (batch.label_CL > 0) & (batch.slot_CL >= 0)
        return {"sequence": batch.index_CL, "mask": own_CL}

    def loss(
        self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None
    ) -> Tensor:
        history = History(ready["sequence"], ready["mask"])
        if u is None:
            with torch.no_grad():
                u = model.user(params, history, rng, True)
        v_CPD = rows(params["items"], history.index_CP)
        s_CP = (v_CPD @ u[..., None])[..., 0]
        alpha, first_CP = getattr(model, "alpha", 0.0), first_places(history).to(s_CP)
        mine_CP = (alpha * history.mask_CP + first_CP) * (1 - s_CP) ** 2 - first_CP * s_CP**2
        every_C = ((u[:, None] @ gram(params["items"])) * u[:, None]).sum((1, 2))  # sum_i (x.y_i)^2
        return every_C + mine_CP.sum(1)


@dataclass(frozen=True)
class DecayedAdam(ServerStep):
    """Adam on dJ/dy_i = -2 sum_u f(u, i) + 2 lambda y_i; the clients' sum is the first part."""

    lr: float = 0.01  # gamma
    weight: float = 1.0  # lambda, of the items' factors
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    name: str = "server step"

    def step(self, memory: FieldDict, params: Fields, update: Fields) -> tuple[FieldDict, Fields]:
        whole = {k: d - 2 * self.weight * params[k] for k, d in update.items()}
        return Adam(self.lr, self.beta1, self.beta2, self.eps).step(memory, params, whole)


def gram(v_GID: Tensor) -> Tensor:
    """The Gram matrix of each table, [G, D, D]."""
    return v_GID.mT @ v_GID

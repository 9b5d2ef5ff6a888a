"""A GRU over the user's items, the next one scored by an inner product (GRU4Rec, Hidasi et al., 2016).

One item table is both input and output, so the state is as wide as an item vector. Nothing is
private: a user vector is computed from the list. This is the next-item form with full
backpropagation through time, not the session-parallel original. H = 3 gates times D.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import History, rows
from covey.core.ragged import Fields
from covey.core.rng import Rng

from .base import drop, linear, uniform_fan_in
from .lists import SequenceModel, by_length
from .recurrence import recur

FEWEST = 8  # clients side by side; matrix kernels round differently for one to three
MOST = 4096  # side by side; cuDNN fails on tens of thousands
HELD = 12  # numbers for each of a list's, when nothing is trained: gates, and states before and after them


@dataclass(frozen=True)
class GRU(SequenceModel):
    dim: int = 64
    last: int = 200  # newest items that a user vector is computed from
    scale: float = 0.1  # standard deviation of the item table's start
    dropout: float = 0.0  # of the item vectors that are read
    cosine: bool = False  # scores are cosines, not inner products
    shared: tuple[str, ...] = ("items", "w_in", "w_state", "b_in", "b_state")
    tuned: tuple[str, ...] = ()

    def public(self, n_items: int, rng: Rng) -> Fields:
        width = 3 * self.dim
        shapes = {
            "w_in": (self.dim, width),
            "w_state": (self.dim, width),
            "b_in": (width,),
            "b_state": (width,),
        }
        gates = {
            name: uniform_fan_in(rng.fold(name), self.dim, *shape) for name, shape in shapes.items()
        }
        return {"items": self.scale * rng.fold("items").normal(n_items, self.dim)[0], **gates}

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        """Lists are padded on the right, so what stands behind a list never reaches its states."""
        if not training:
            return by_length(
                params, history, self.last, self._after, lambda wide: HELD * wide * self.dim
            )
        x_CPD = drop(rows(params["items"], history.index_CP), self.dropout, rng.fold("dropout"))
        return _states(params, x_CPD)[:, :-1]

    def _after(self, params: Fields, history: History) -> Tensor:
        """States after the whole list."""
        length_C = history.mask_CP.sum(1)
        h_CPD = _states(params, rows(params["items"], history.index_CP))
        return h_CPD[torch.arange(len(length_C), device=length_C.device), length_C]


def _states(params: Fields, x_CPD: Tensor) -> Tensor:
    """From the one before the first item, which is zero, to that after the last."""
    after_CPD = (
        _fused(params, x_CPD) if params["w_state"].shape[0] == 1 else _stepwise(params, x_CPD)
    )
    return F.pad(after_CPD, (0, 0, 1, 0))


def _fused(params: Fields, x_CPD: Tensor) -> Tensor:
    """States after each position where all clients have the same weights; cuDNN on CUDA."""
    many = len(x_CPD)
    x_CPD = F.pad(x_CPD, (0, 0, 0, 0, 0, max(FEWEST - many, 0)))
    weights = [params["w_in"][0], params["w_state"][0], params["b_in"][0], params["b_state"][0]]
    if x_CPD.device.type == "cpu":
        in_PCH = x_CPD.transpose(0, 1) @ weights[0] + weights[2]
        return recur(in_PCH, weights[1], weights[3]).transpose(0, 1)[:many]
    weights = [w.mT if w.dim() == 2 else w for w in weights]
    flat = torch.cat([w.flatten() for w in weights]).split(
        [w.numel() for w in weights]
    )  # cuDNN wants one stretch
    weights = [part.view(w.shape) for part, w in zip(flat, weights, strict=True)]
    learns = torch.is_grad_enabled()
    parts = []
    for part_CPD in x_CPD.split(MOST):
        start = part_CPD.new_zeros(1, len(part_CPD), part_CPD.shape[2])
        parts.append(torch.gru(part_CPD, start, weights, True, 1, 0.0, learns, False, True)[0])
    return torch.cat(parts)[:many]


def _stepwise(params: Fields, x_CPD: Tensor) -> Tensor:
    """The same where each client has its own weights."""
    h_CD = torch.zeros_like(x_CPD[:, 0])
    D = h_CD.shape[1]
    states = []
    for in_CH in linear(x_CPD, params["w_in"], params["b_in"]).unbind(1):
        own_CH = linear(h_CD[:, None], params["w_state"], params["b_state"])[:, 0]
        reset_CD, keep_CD = (in_CH[:, : 2 * D] + own_CH[:, : 2 * D]).sigmoid().chunk(2, 1)
        new_CD = (in_CH[:, 2 * D :] + reset_CD * own_CH[:, 2 * D :]).tanh()
        h_CD = torch.lerp(new_CD, h_CD, keep_CD)
        states.append(h_CD)
    return torch.stack(states, 1)

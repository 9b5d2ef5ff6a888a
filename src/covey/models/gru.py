"""GRU4Rec (Hidasi et al., 2016): predicts the next item by a GRU over the user's items.

One item table is both input and output, so the state is as wide as an item vector. Nothing is
private: a user vector is computed from the list. The original trains on parallel sessions; here
gradients go back through a whole list. Shape suffix: H = 3 gates times D.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import History, rows
from covey.core import Fields, Rng

from .base import drop, linear, uniform_fan_in
from .lists import FEWEST, SequenceModel, by_length
from .recurrence import recur

MOST = 4096  # clients at a time; cuDNN fails on tens of thousands
HELD = 12  # numbers per number of a list's vectors, without training: the gates and their states


@dataclass(frozen=True)
class GRU(SequenceModel):
    """A GRU, with inner products or cosines as scores."""

    dim: int = 64
    last: int = 200  # newest items that a user vector is computed from
    scale: float = 0.1  # standard deviation of the item table's start
    dropout: float = 0.0  # of the item vectors that are read
    cosine: bool = False  # scores are cosines, not inner products
    shared: tuple[str, ...] = ("items", "w_in", "w_state", "b_in", "b_state")
    tuned: tuple[str, ...] = ()

    def public(self, n_items: int, rng: Rng) -> Fields:
        weight, bias = (self.dim, 3 * self.dim), (3 * self.dim,)
        shapes = {"w_in": weight, "w_state": weight, "b_in": bias, "b_state": bias}
        gates = {k: uniform_fan_in(rng.fold(k), self.dim, *shape) for k, shape in shapes.items()}
        return {"items": self.scale * rng.fold("items").normal(n_items, self.dim)[0], **gates}

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        """Lists are padded on the right, so padding never reaches the states of a list."""
        if not training:
            return by_length(
                params, history, self.last, self._after, lambda wide: HELD * wide * self.dim
            )
        x_CPD = drop(rows(params["items"], history.index_CP), self.dropout, rng.fold("dropout"))
        return _states(params, x_CPD)[:, :-1]

    def _after(self, params: Fields, history: History) -> Tensor:
        length_C = history.mask_CP.sum(1)
        h_CPD = _states(params, rows(params["items"], history.index_CP))
        return h_CPD[torch.arange(len(length_C), device=length_C.device), length_C]


def _states(params: Fields, x_CPD: Tensor) -> Tensor:
    """The states from the one before the first item, which is zero, to that after the last."""
    shares_weights = params["w_state"].shape[0] == 1
    after_CPD = _fused(params, x_CPD) if shares_weights else _stepwise(params, x_CPD)
    return F.pad(after_CPD, (0, 0, 1, 0))


def _fused(params: Fields, x_CPD: Tensor) -> Tensor:
    """The states after each position if all clients share the weights; by cuDNN on CUDA."""
    many = len(x_CPD)
    x_CPD = F.pad(x_CPD, (0, 0, 0, 0, 0, max(FEWEST - many, 0)))
    weights = [params["w_in"][0], params["w_state"][0], params["b_in"][0], params["b_state"][0]]
    if x_CPD.device.type == "cpu":
        in_PCH = x_CPD.transpose(0, 1) @ weights[0] + weights[2]
        return recur(in_PCH, weights[1], weights[3]).transpose(0, 1)[:many]
    weights = [w.mT if w.dim() == 2 else w for w in weights]
    flat = torch.cat([w.flatten() for w in weights])  # cuDNN wants them contiguous
    parts = flat.split([w.numel() for w in weights])
    weights = [part.view(w.shape) for part, w in zip(parts, weights, strict=True)]
    learns = torch.is_grad_enabled()
    states = []
    for part_CPD in x_CPD.split(MOST):
        start = part_CPD.new_zeros(1, len(part_CPD), part_CPD.shape[2])
        states.append(torch.gru(part_CPD, start, weights, True, 1, 0.0, learns, False, True)[0])
    return torch.cat(states)[:many]


def _stepwise(params: Fields, x_CPD: Tensor) -> Tensor:
    """The states after each position if each client has its own weights."""
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

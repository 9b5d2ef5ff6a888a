"""BERT4Rec (Sun et al., 2019): predicts hidden items from the items on both sides of them.

Nothing is private. A hidden item is replaced by the vector `mask`, which is also appended to a list
when the next item is wanted. As in the original the output passes a dense layer; there is no output
bias. Shape suffixes: N = layers, P = positions, E = 4 D.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import History, rows
from covey.core import CoveyError, Fields, Rng

from .attention import Dropout, attend, attention_bias, initial_norms, layer_norm, positions
from .base import linear
from .lists import Transformer, by_length

QUERY, KEY, VALUE, OUT, DOWN = range(5)
LAYERS = ("w", "b", "w_up", "b_up", "w_down", "w_head", "b_head", "norm")


def cloze(mask_CP: Tensor, hide: float, end: float, rng: Rng) -> Tensor:
    """Draws which items are hidden, [C, P] bool; the draws do not depend on the padding.

    Each item is hidden with probability `hide`, and at least one of a list is; with probability
    `end` it is the last item alone.
    """
    place_P = torch.arange(mask_CP.shape[1], device=mask_CP.device)
    unit_CP = rng.fold("cloze").uniform(len(place_P)).masked_fill(~mask_CP, 2.0)
    hidden_CP = (unit_CP < hide) | (unit_CP == unit_CP.min(1, keepdim=True).values)
    last_CP = place_P == mask_CP.sum(1, keepdim=True) - 1
    only_C1 = rng.fold("cloze end").uniform(1) < end
    return torch.where(only_C1, last_CP, hidden_CP) & mask_CP


@dataclass(frozen=True)
class BERT4Rec(Transformer):
    """BERT4Rec, with inner products or cosines as scores."""

    heads: int = 2
    shared: tuple[str, ...] = ("items", "positions", "mask", *LAYERS)
    tuned: tuple[str, ...] = ()

    def public(self, n_items: int, rng: Rng) -> Fields:
        N, D, E = self.layers, self.dim, 4 * self.dim

        def drawn(scale: float, name: str, *shape: int) -> Tensor:
            return scale * rng.fold(name).normal(*shape)[0]

        return {
            "items": drawn(self.scale, "items", n_items, D),
            "positions": drawn(self.scale, "positions", self.last, D),
            "mask": drawn(self.scale, "mask", D),
            "w": drawn(D**-0.5, "w", 4 * N, D, D),
            "b": torch.zeros(5 * N, D),
            "w_up": drawn(D**-0.5, "w_up", N, D, E),
            "b_up": torch.zeros(N, E),
            "w_down": drawn(E**-0.5, "w_down", N, E, D),
            "w_head": drawn(D**-0.5, "w_head", D, D),
            "b_head": torch.zeros(D),
            "norm": initial_norms(2 * N + 2, D),
        }

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        """In training, a vector at each position; the vectors at hidden positions are used."""
        if not training:
            return by_length(params, history, self.last - 1, self._next, self.map_size)
        if history.hidden_CP is None:
            wrong = "BERT4Rec predicts hidden items, and this objective hides none"
            remedy = "use covey.objectives.sequence:MaskedItem, or objective.hide over 0"
            raise CoveyError(f"{wrong}; {remedy}")
        dropout = Dropout(self.dropout, rng.fold("dropout"))
        return self._states(params, history, history.hidden_CP, dropout)

    def _next(self, params: Fields, history: History) -> Tensor:
        length_C = history.mask_CP.sum(1)
        place_P = torch.arange(history.index_CP.shape[1], device=length_C.device)
        end_CP = place_P == length_C[:, None]
        longer = History(history.index_CP, history.mask_CP | end_CP)
        return self._states(params, longer, end_CP, Dropout(0.0, Rng(length_C, length_C)))[end_CP]

    def _states(self, params: Fields, history: History, hidden_CP: Tensor, drop: Dropout) -> Tensor:
        """A vector at each position, [C, P, D], from the items that are not hidden."""
        many, norm = history.index_CP.shape[1], params["norm"]
        v_CPD = rows(params["items"], history.index_CP)
        v_CPD = torch.where(hidden_CP[..., None], params["mask"][:, None], v_CPD)
        x_CPD = v_CPD + positions(params["positions"], many)
        x_CPD = drop(layer_norm(x_CPD, norm[:, 0]), "input")
        # Padding sees itself: a row without any visible position would be NaN.
        own_PP = torch.eye(many, dtype=torch.bool, device=x_CPD.device)
        padding_C1PP = attention_bias((history.mask_CP[:, None] | own_PP)[:, None])
        for n in range(self.layers):
            x_CPD = self._layer(params, n, x_CPD, padding_C1PP, drop)
        return layer_norm(F.gelu(linear(x_CPD, params["w_head"], params["b_head"])), norm[:, -1])

    def _layer(self, params: Fields, n: int, x_CPD: Tensor, bias: Tensor, drop: Dropout) -> Tensor:
        w, b, norm = params["w"], params["b"], params["norm"]

        def through(x: Tensor, which: int) -> Tensor:
            return linear(x, w[:, 4 * n + which], b[:, 5 * n + which])

        q, k, v = (through(x_CPD, which) for which in (QUERY, KEY, VALUE))
        a_CPD = through(attend(q, k, v, bias, self.heads, drop, f"attention {n}"), OUT)
        x_CPD = layer_norm(x_CPD + drop(a_CPD, f"out {n}"), norm[:, 2 * n + 1])
        f_CPE = F.gelu(linear(x_CPD, params["w_up"][:, n], params["b_up"][:, n]))
        f_CPD = linear(f_CPE, params["w_down"][:, n], b[:, 5 * n + DOWN])
        return layer_norm(x_CPD + drop(f_CPD, f"down {n}"), norm[:, 2 * n + 2])

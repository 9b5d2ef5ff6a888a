"""SASRec (Kang and McAuley, 2018): predicts the next item by self-attention over the user's items.

One item table is both input and output. Nothing is private: a user vector is computed from the
list. Shape suffixes: N = layers, P = positions.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import History, rows
from covey.core import Fields, Rng

from .attention import Dropout, attend, attention_bias, initial_norms, layer_norm, positions
from .base import linear
from .lists import Transformer, by_length

QUERY, KEY, VALUE, UP, DOWN = range(5)


@dataclass(frozen=True)
class SASRec(Transformer):
    """SASRec, with inner products or cosines as scores."""

    shared: tuple[str, ...] = ("items", "positions", "w", "b", "norm")
    tuned: tuple[str, ...] = ()

    def public(self, n_items: int, rng: Rng) -> Fields:
        N, D = self.layers, self.dim
        return {
            "items": self.scale * rng.fold("items").normal(n_items, D)[0],
            "positions": self.scale * rng.fold("positions").normal(self.last - 1, D)[0],
            "w": rng.fold("w").normal(5 * N, D, D)[0] * D**-0.5,
            "b": torch.zeros(5 * N, D),
            "norm": initial_norms(2 * N + 1, D),
        }

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        """Lists are padded on the right, so padding never reaches the states of a list."""
        if not training:
            return by_length(params, history, self.last - 1, self._after, self.map_size)
        shown = History(history.index_CP[:, :-1], history.mask_CP[:, :-1])
        h_CPD = self._states(params, shown, Dropout(self.dropout, rng.fold("dropout")))
        return F.pad(h_CPD, (0, 0, 1, 0))  # before the first item nothing is known

    def _after(self, params: Fields, history: History) -> Tensor:
        """The state after the whole list; zero where it is empty."""
        length_C = history.mask_CP.sum(1)
        h_CPD = self._states(params, history, Dropout(0.0, Rng(length_C, length_C)))
        client_C = torch.arange(len(length_C), device=length_C.device)
        h_CD = h_CPD[client_C, (length_C - 1).clamp(min=0)]
        return torch.where(length_C[:, None] > 0, h_CD, 0)

    def _states(self, params: Fields, history: History, dropout: Dropout) -> Tensor:
        """A vector at each position, [C, P, D], from the items up to it."""
        many = history.index_CP.shape[1]
        x_CPD = rows(params["items"], history.index_CP) * self.dim**0.5
        x_CPD = dropout(x_CPD + positions(params["positions"], many), "input")
        seen_PP = torch.ones(many, many, dtype=torch.bool, device=x_CPD.device).tril()
        bias_PP = attention_bias(seen_PP)
        for n in range(self.layers):
            x_CPD = self._layer(params, n, x_CPD, bias_PP, dropout)
        return layer_norm(x_CPD, params["norm"][:, -1])

    def _layer(self, params: Fields, n: int, x_CPD: Tensor, bias: Tensor, drop: Dropout) -> Tensor:
        w, b = params["w"], params["b"]

        def through(x: Tensor, which: int) -> Tensor:
            return linear(x, w[:, 5 * n + which], b[:, 5 * n + which])

        norm_CPD = layer_norm(x_CPD, params["norm"][:, 2 * n])
        k, v, q = through(x_CPD, KEY), through(x_CPD, VALUE), through(norm_CPD, QUERY)
        a_CPD = attend(q, k, v, bias, self.heads, drop, f"attention {n}")
        x_CPD = layer_norm(norm_CPD + a_CPD, params["norm"][:, 2 * n + 1])
        f_CPD = drop(through(x_CPD, UP), f"up {n}").relu()
        return x_CPD + drop(through(f_CPD, DOWN), f"down {n}")

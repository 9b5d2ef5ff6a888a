"""SASRec: self-attention over the user's items, the next one scored by an inner product (Kang and McAuley, 2018).

One item table is both input and output. Nothing is private: a user vector is computed from the list.
Shape suffixes: N = layers, P = positions.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import History, rows
from covey.core.checks import positive
from covey.core.ragged import Fields
from covey.core.rng import Rng

from .attention import Dropout, attend, barred, check_heads, flat_norms, normed, positions
from .base import linear
from .lists import SequenceModel, by_length

QUERY, KEY, VALUE, UP, DOWN = range(5)


@dataclass(frozen=True)
class SASRec(SequenceModel):
    dim: int = 64
    layers: int = 2
    heads: int = 1
    dropout: float = 0.2
    last: int = (
        200  # newest items of a list, the one to be guessed included; as many positions less one
    )
    scale: float = 0.02  # standard deviation of the tables' start
    cosine: bool = False  # scores are cosines, not inner products
    shared: tuple[str, ...] = ("items", "positions", "w", "b", "norm")
    tuned: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("model", layers=self.layers, last=self.last - 1)
        check_heads(self.dim, self.heads)

    def public(self, n_items: int, rng: Rng) -> Fields:
        N, D = self.layers, self.dim

        def drawn(name: str, *shape: int) -> Tensor:
            return rng.fold(name).normal(*shape)[0]

        return {
            "items": self.scale * drawn("items", n_items, D),
            "positions": self.scale * drawn("positions", self.last - 1, D),
            "w": drawn("w", 5 * N, D, D) * D**-0.5,
            "b": torch.zeros(5 * N, D),
            "norm": flat_norms(2 * N + 1, D),
        }

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        """Lists are padded on the right, so what stands behind a list never reaches its states."""
        if not training:
            return by_length(
                params, history, self.last - 1, self._after, lambda wide: self.heads * wide * wide
            )
        shown = History(history.index_CP[:, :-1], history.mask_CP[:, :-1])
        h_CPD = self._states(params, shown, Dropout(self.dropout, rng.fold("dropout")))
        return F.pad(h_CPD, (0, 0, 1, 0))  # before the first item nothing is known

    def _after(self, params: Fields, history: History) -> Tensor:
        """The state after the whole list; zero where it is empty."""
        length_C = history.mask_CP.sum(1)
        h_CPD = self._states(params, history, Dropout(0.0, Rng(length_C, length_C)))
        h_CD = h_CPD[
            torch.arange(len(length_C), device=length_C.device), (length_C - 1).clamp(min=0)
        ]
        return torch.where(length_C[:, None] > 0, h_CD, 0)

    def _states(self, params: Fields, history: History, dropout: Dropout) -> Tensor:
        """[C, P, D], each from the items up to its position."""
        many = history.index_CP.shape[1]
        x_CPD = rows(params["items"], history.index_CP) * self.dim**0.5 + positions(
            params["positions"], many
        )
        x_CPD = dropout(x_CPD, "input")
        later_PP = barred(torch.ones(many, many, dtype=torch.bool, device=x_CPD.device).tril())
        for n in range(self.layers):
            x_CPD = self._layer(params, n, x_CPD, later_PP, dropout)
        return normed(x_CPD, params["norm"][:, -1])

    def _layer(
        self, params: Fields, n: int, x_CPD: Tensor, later_PP: Tensor, dropout: Dropout
    ) -> Tensor:
        w, b = params["w"], params["b"]

        def through(x: Tensor, which: int) -> Tensor:
            return linear(x, w[:, 5 * n + which], b[:, 5 * n + which])

        q_CPD = normed(x_CPD, params["norm"][:, 2 * n])
        key_CPD, value_CPD = through(x_CPD, KEY), through(x_CPD, VALUE)
        a_CPD = attend(
            through(q_CPD, QUERY),
            key_CPD,
            value_CPD,
            later_PP,
            self.heads,
            dropout,
            f"attention {n}",
        )
        x_CPD = normed(q_CPD + a_CPD, params["norm"][:, 2 * n + 1])
        f_CPD = dropout(through(x_CPD, UP), f"up {n}").relu()
        return x_CPD + dropout(through(f_CPD, DOWN), f"down {n}")

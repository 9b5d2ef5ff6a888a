"""Bases of models that compute user vectors from lists of items.

Outside training, `by_length` computes the vectors of many clients in bounded memory.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import History
from covey.core import CoveyError, Fields, Rng, positive, share

from .base import cosine, dot

Encode = Callable[[Fields, History], Tensor]
FEWEST = 8  # clients at a time; matrix kernels round differently for one to three
CPU_NUMBERS, CUDA_NUMBERS = 1 << 22, 1 << 27


class ListModel:
    """A model that computes a user vector from the user's list and so keeps nothing private.

    If not overridden, scores are inner products with a table that starts normally distributed.
    """

    dim: int
    scale: float  # standard deviation of the table's start
    kept: tuple[str, ...] = ()
    uploaded: tuple[str, ...] = ()
    tables: tuple[str, ...] = ("items",)
    sequential: bool = True

    @property
    def stochastic(self) -> bool:
        return False

    def public(self, n_items: int, rng: Rng) -> Fields:
        return {"items": self.scale * rng.fold("items").normal(n_items, self.dim)[0]}

    def private(self, rng: Rng, start: Rng) -> Fields:
        return {}

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        return dot(u, v_CLD)


class SequenceModel(ListModel):
    """A model that reads a list in its order, and scores items with inner products or cosines.

    One item table is both input and output. The subclass is a dataclass with these options.
    """

    last: int  # newest items of a list
    dropout: float
    cosine: bool  # scores are cosines, not inner products

    def __post_init__(self) -> None:
        positive("model", dim=self.dim, last=self.last)
        share("model", dropout=self.dropout)

    @property
    def stochastic(self) -> bool:
        return self.dropout > 0

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        return cosine(u, v_CLD) if self.cosine else dot(u, v_CLD)


@dataclass(frozen=True)
class Transformer(SequenceModel):
    """A sequence model with layers of attention."""

    dim: int = 64
    layers: int = 2
    heads: int = 1
    dropout: float = 0.2
    last: int = 200  # newest items of a list, with the one to be predicted
    scale: float = 0.02  # standard deviation of the tables' start
    cosine: bool = False  # scores are cosines, not inner products

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("model", layers=self.layers, last=self.last - 1)
        if self.heads < 1 or self.dim % self.heads:
            wrong = f"model: heads = {self.heads} does not divide dim = {self.dim}"
            raise CoveyError(f"{wrong}; use 1 or another divisor")

    def map_size(self, wide: int) -> int:
        """How many attention weights a layer holds for a list of that width."""
        return self.heads * wide * wide


def by_length(
    params: Fields, history: History, most: int, encode: Encode, numbers: Callable[[int], int]
) -> Tensor:
    """Computes user vectors, [C, D], a few clients of similar length at a time.

    A client is padded to a width that depends on its own list alone, so its vector has the same
    bits whichever clients are computed with it. `encode` computes the vectors from parameters and
    the `most` newest items of lists, which are padded to one place more at least; for a client
    whose list is padded to a width it holds so many `numbers`.
    """
    history = history.newest(most)
    length_C = history.mask_CP.sum(1)
    wide_C = widths(length_C + 1).clamp(max=max(most + 1, 8))
    at_once = CPU_NUMBERS if length_C.device.type == "cpu" else CUDA_NUMBERS
    parts, picks = [], []
    for wide in wide_C.unique().tolist():
        here = (wide_C == wide).nonzero()[:, 0]
        for pick in here.split(max(FEWEST, at_once // numbers(wide))):
            full = torch.cat([pick, pick[:1].expand(max(FEWEST - len(pick), 0))])
            mine = {k: v if len(v) == 1 else v[full] for k, v in params.items()}
            lists = (x[full, :wide] for x in (history.index_CP, history.mask_CP))
            padded = (F.pad(x, (0, wide - x.shape[1])) for x in lists)
            parts.append(encode(mine, History(*padded))[: len(pick)])
            picks.append(pick)
    return torch.cat(parts)[torch.cat(picks).argsort()]


def first_places(history: History) -> Tensor:
    """Where an item of the list occurs for the first time, [C, P] bool."""
    index_CP = torch.where(history.mask_CP, history.index_CP, -1)
    sorted_CP, order_CP = index_CP.sort(stable=True, dim=1)
    new_CP = torch.ones_like(history.mask_CP)
    new_CP[:, 1:] = sorted_CP[:, 1:] != sorted_CP[:, :-1]
    return torch.zeros_like(new_CP).scatter_(1, order_CP, new_CP) & history.mask_CP


def widths(length_C: Tensor) -> Tensor:
    """The widths to which lists are padded: 8, 16, 32, ..."""
    return 2 ** length_C.clamp(min=8).double().log2().ceil().long()

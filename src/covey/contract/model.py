"""The interface of recommender models: pure functions of stacked parameters.

A parameter has a leading C (one per client) or a leading 1 (the same for all of them); the
functions broadcast, so the same code trains a thousand personal copies, adds up gradients of one
shared copy, and scores the whole catalogue.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from covey.core import Fields, Ragged, Rng, offsets_of


@dataclass(frozen=True)
class History:
    """The items that a user vector is computed from, as row numbers of the given item tables."""

    index_CP: Tensor  # the row of each item, oldest first, padded to P places
    mask_CP: Tensor  # whether a place holds an item, bool
    hidden_CP: Tensor | None = None  # items that the model has to predict from the others, bool

    @classmethod
    def of(cls, items: Ragged, last: int = 0) -> "History":
        """Item ids as row numbers; `last` keeps only that many of the newest items, 0 all."""
        if last:
            keep = items.lengths.clamp(max=last)
            offsets = offsets_of(keep)
            shift_T = (items.offsets[1:] - keep - offsets[:-1]).repeat_interleave(keep)
            flat = shift_T + torch.arange(len(shift_T), device=shift_T.device)
            items = Ragged(items.values[flat], offsets)
        width = max(int(items.lengths.max()) if len(items) else 0, 1)
        return cls(items.padded(width), items.mask(width))

    def newest(self, last: int) -> "History":
        """The newest `last` items of each list."""
        if self.index_CP.shape[1] <= last:
            return self
        start_C1 = (self.mask_CP.sum(1, keepdim=True) - last).clamp(min=0)
        place_CP = start_C1 + torch.arange(last, device=start_C1.device)
        return History(self.index_CP.gather(1, place_CP), self.mask_CP.gather(1, place_CP))


NO_HISTORY = History(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.bool))


class Model(Protocol):
    """A recommender: the names of its parameters by kind, and the functions that use them.

    Attributes:
        shared: Parameters that the server sends and whose updates are uploaded.
        kept: Parameters that stay on the device.
        tuned: Shared tables whose trained rows the client keeps for its ranking.
        uploaded: Kept parameters that are also uploaded as they are.
        tables: Item tables [I, D], of which only the rows that are used are trained.
    """

    @property
    def shared(self) -> tuple[str, ...]: ...
    @property
    def kept(self) -> tuple[str, ...]: ...
    @property
    def tuned(self) -> tuple[str, ...]: ...
    @property
    def uploaded(self) -> tuple[str, ...]: ...
    @property
    def tables(self) -> tuple[str, ...]: ...
    @property
    def sequential(self) -> bool:
        """Whether the user vector is computed from the client's list."""

    @property
    def stochastic(self) -> bool:
        """Whether training draws random numbers, as dropout does; each step then has a stream."""

    def public(self, n_items: int, rng: Rng) -> Fields:
        """The first values of the shared parameters; `rng` is one stream."""

    def private(self, rng: Rng, start: Rng) -> Fields:
        """The first values of each client's parameters, [C, ...]; all share the stream `start`."""

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        """User vectors [C, D], or [C, P, D] with one before each position of the history.

        Parameters are [C or 1, ...]; `rng` has one stream per client.
        """

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        """Logits of the items with the rows `v_CLD`, for user vectors as `user` returns them.

        They are [C, L] for one vector per client, [C, P, L] for one per position.
        """


def rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows [C, L, D] of stacked tables [C or 1, I, D], for row numbers [C, L]."""
    height = table.shape[1]
    if table.shape[0] > 1:
        index = index + torch.arange(table.shape[0], device=index.device)[:, None] * height
    return torch.nn.functional.embedding(index, table.flatten(0, 1))

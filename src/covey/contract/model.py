"""What a recommender is to Covey: pure functions of stacked parameters.

A parameter has a leading C (one per client) or a leading 1 (the same for all of them); the
functions broadcast, so the same code trains a thousand personal copies, sums gradients from one
shared copy, and scores the whole catalogue.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from covey.core.ragged import Fields, Ragged
from covey.core.rng import Rng


@dataclass(frozen=True)
class History:
    """The items a user vector is computed from, as row numbers of the item tables at hand."""

    index_CP: Tensor
    mask_CP: Tensor  # bool
    hidden_CP: Tensor | None = None  # bool: items that a model is to guess from the others

    @classmethod
    def of(cls, items: Ragged, last: int = 0) -> "History":
        """The catalogue as the table: row number = item id; `last` keeps only the newest."""
        if last:
            keep = items.lengths.clamp(max=last)
            start = items.offsets[1:] - keep
            offsets = torch.nn.functional.pad(keep.cumsum(0), (1, 0))
            flat = torch.arange(int(offsets[-1]), device=keep.device) + (
                start - offsets[:-1]
            ).repeat_interleave(keep)
            items = Ragged(items.values[flat], offsets)
        width = max(int(items.lengths.max()) if len(items) else 0, 1)
        return cls(items.padded(width), items.mask(width))

    def newest(self, last: int) -> "History":
        if self.index_CP.shape[1] <= last:
            return self
        start_C1 = (self.mask_CP.sum(1, keepdim=True) - last).clamp(min=0)
        place_CP = start_C1 + torch.arange(last, device=start_C1.device)
        return History(self.index_CP.gather(1, place_CP), self.mask_CP.gather(1, place_CP))


NO_HISTORY = History(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.bool))


class Model(Protocol):
    """Names of the parameters by class, and the functions that use them.

    `shared` is sent and its update uploaded; `kept` stays on the device; a kept parameter in
    `uploaded` is also uploaded as it is; `tuned` are shared tables whose trained rows the client
    keeps for its own ranking. `tables` are item tables [I, D], trained by touched rows.
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
        """Whether training draws at random, as dropout does; then each step has its own stream."""

    def public(self, n_items: int, rng: Rng) -> Fields:
        """What the server starts from; `rng` is one stream."""

    def private(self, rng: Rng, start: Rng) -> Fields:
        """What each new client starts from, [C, ...]; `start` is one stream that all share."""

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        """[C, D], or [C, P, D] with one vector before each position of the history."""

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        """Logits: [C, L] of one vector per client, [C, P, L] of one per position."""


def rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows [C, L, D] of stacked tables [C or 1, I, D]."""
    height = table.shape[1]
    if table.shape[0] > 1:
        index = index + torch.arange(table.shape[0], device=index.device)[:, None] * height
    return torch.nn.functional.embedding(index, table.flatten(0, 1))

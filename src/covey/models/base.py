"""What a recommender is to Covey: pure functions of stacked parameters.

A parameter has a leading C (one per client) or a leading 1 (the same for all of them); the
functions broadcast, so the same code trains a thousand personal copies, sums gradients from one
shared copy, and scores the whole catalogue.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..core import CoveyError, Fields, Ragged
from ..rng import Rng

DEEP_CLIENTS, DEEP_ITEMS = 16, 512  # whose layers are computed at once: of 32 numbers each, 1 MB


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
            flat = torch.arange(int(offsets[-1]), device=keep.device) + (start - offsets[:-1]).repeat_interleave(keep)
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


def catalogue(model: Model, params: Fields, u_CD: Tensor, first: int = 0, last: int | None = None) -> Tensor:
    """Scores of all items of stacked tables, or of those in a row, [C, I]; layers between are computed in the cache."""
    table, many = params["items"], len(u_CD)
    last = table.shape[1] if last is None else last
    if not deep(model) or table.device.type != "cpu":
        return model.score(params, u_CD, table[:, first:last])
    score_CI = u_CD.new_empty(many, last - first)
    for c in range(0, many, DEEP_CLIENTS):
        some = slice(c, c + DEEP_CLIENTS)
        mine = {k: v if len(v) == 1 else v[some] for k, v in params.items()}
        for i in range(first, last, DEEP_ITEMS):
            stop = min(i + DEEP_ITEMS, last)
            score_CI[some, i - first : stop - first] = model.score(mine, u_CD[some], mine["items"][:, i:stop])
    return score_CI


def deep(model: Model) -> bool:
    """Whether layers lie between vectors and scores."""
    return bool(getattr(model, "hidden", ()))


def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """x [C, L, A] times w [C or 1, A, B] plus b [C or 1, B], fused where the leading sizes agree."""
    if x.shape[0] == w.shape[0]:
        return torch.baddbmm(b[:, None], x, w)
    return x @ w + b[:, None]


def share(section: str, **options: float) -> None:
    """Says which option of a section is not from 0 to below 1, where one is not."""
    for name, value in options.items():
        if not 0 <= value < 1:
            raise CoveyError(f"{section}: {name} = {value}; it is a share, from 0 to below 1")


def drop(x: Tensor, rate: float, rng: Rng) -> Tensor:
    """Dropout of x [C, P, D] from each client's own stream; what is drawn does not depend on the padding."""
    return kept(x, rng.bits(*x.shape[1:]), rate) if rate else x


def kept(x: Tensor, words: Tensor, rate: float) -> Tensor:
    """x with a share `rate` of it, chosen by 64 random bits each, set to zero and the rest scaled up."""
    return torch.where(words >= int((rate - 0.5) * 2.0**64), x / (1 - rate), 0)


def uniform_fan_in(rng: Rng, fan_in: int, *shape: int) -> Tensor:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)), the usual start of a linear layer, from one stream."""
    return ((rng.uniform(*shape)[0] * 2 - 1) / fan_in**0.5).float()


def dot(u: Tensor, v_CLD: Tensor) -> Tensor:
    """Inner products: [C, L] for u [C, D], [C, P, L] for u [C, P, D]."""
    if u.dim() == 3:
        return u @ v_CLD.mT
    if v_CLD.shape[0] == 1:
        return u @ v_CLD[0].mT
    return (v_CLD * u[:, None]).sum(-1)  # a batched matrix-vector product is three times slower on a CPU


def cosine(u: Tensor, v_CLD: Tensor) -> Tensor:
    """Cosines, in the shapes of `dot`."""
    return dot(torch.nn.functional.normalize(u, dim=-1), torch.nn.functional.normalize(v_CLD, dim=-1))

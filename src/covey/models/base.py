"""Helpers for models: scores of the whole catalogue, layers, dropout and inner products."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import NO_HISTORY as NO_HISTORY
from covey.contract.model import History as History
from covey.contract.model import Model as Model
from covey.contract.model import rows as rows
from covey.core import Fields, Rng, positive
from covey.core.checks import share as share

DEEP_CLIENTS, DEEP_ITEMS = 16, 512  # computed at once; a layer of 32 numbers then takes 1 MB


class FactorModel:
    """A model of user and item vectors; the subclass is a dataclass with these options."""

    dim: int
    scale: float  # standard deviation of the item table's start
    keep_items: bool  # the table stays on the device, from where it may be uploaded as a model
    bias: bool = False  # an item has a bias, the last number of its row
    upload_user: bool = False  # whether the server gets the user vector as it is
    tables: ClassVar[tuple[str, ...]] = ("items",)
    sequential: ClassVar[bool] = False
    stochastic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive("model", dim=self.dim)

    @property
    def own_items(self) -> tuple[str, ...]:
        """The item table if it stays on the device."""
        return ("items",) if self.keep_items else ()

    @property
    def shared(self) -> tuple[str, ...]:
        return () if self.keep_items else ("items",)

    @property
    def uploaded(self) -> tuple[str, ...]:
        return (*self.own_items, *(("user",) if self.upload_user else ()))

    @property
    def width(self) -> int:
        """How many numbers a row of the item table has."""
        return self.dim + self.bias

    def public(self, n_items: int, rng: Rng) -> Fields:
        return {"items": self.scale * rng.fold("items").normal(n_items, self.width)[0]}


def catalogue(
    model: Model, params: Fields, u_CD: Tensor, first: int = 0, last: int | None = None
) -> Tensor:
    """Scores of the items from `first` to `last` - 1, [C, last - first]; on a CPU by tiles."""
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
            tile_CI = model.score(mine, u_CD[some], mine["items"][:, i:stop])
            score_CI[some, i - first : stop - first] = tile_CI
    return score_CI


def deep(model: Model) -> bool:
    """Whether hidden layers lie between vectors and scores."""
    return bool(getattr(model, "hidden", ()))


def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """x [C, L, A] times w [C or 1, A, B] plus b [C or 1, B], fused if the leading sizes agree."""
    if x.shape[0] == w.shape[0]:
        return torch.baddbmm(b[:, None], x, w)
    return x @ w + b[:, None]


def drop(x: Tensor, rate: float, rng: Rng) -> Tensor:
    """Dropout of x [C, P, D] from each client's stream; draws do not depend on the padding."""
    return drop_by_bits(x, rng.bits(*x.shape[1:]), rate) if rate else x


def drop_by_bits(x: Tensor, bits: Tensor, rate: float) -> Tensor:
    """Dropout of x, decided by 64 random bits for each number: sets to zero or scales up."""
    return torch.where(bits >= int((rate - 0.5) * 2.0**64), x / (1 - rate), 0)


def uniform_fan_in(rng: Rng, fan_in: int, *shape: int) -> Tensor:
    """Draws U(-1/sqrt(fan_in), 1/sqrt(fan_in)), the usual start of a layer, from one stream."""
    return ((rng.uniform(*shape)[0] * 2 - 1) / fan_in**0.5).float()


def dot(u: Tensor, v_CLD: Tensor) -> Tensor:
    """Inner products: [C, L] for u [C, D], [C, P, L] for u [C, P, D]."""
    if u.dim() == 3:
        return u @ v_CLD.mT
    if v_CLD.shape[0] == 1:
        return u @ v_CLD[0].mT
    # A batched matrix-vector product is three times slower on a CPU.
    return (v_CLD * u[:, None]).sum(-1)


def cosine(u: Tensor, v_CLD: Tensor) -> Tensor:
    """Cosines, in the shapes of `dot`."""
    return dot(F.normalize(u, dim=-1), F.normalize(v_CLD, dim=-1))

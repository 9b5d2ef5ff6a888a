"""Helpers for models: scoring the whole catalogue, layers, dropout and inner products."""

import torch
from torch import Tensor

from covey.contract.model import Model
from covey.core.ragged import Fields
from covey.core.rng import Rng

DEEP_CLIENTS, DEEP_ITEMS = 16, 512  # whose layers are computed at once: of 32 numbers each, 1 MB


def catalogue(
    model: Model, params: Fields, u_CD: Tensor, first: int = 0, last: int | None = None
) -> Tensor:
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
            score_CI[some, i - first : stop - first] = model.score(
                mine, u_CD[some], mine["items"][:, i:stop]
            )
    return score_CI


def deep(model: Model) -> bool:
    """Whether layers lie between vectors and scores."""
    return bool(getattr(model, "hidden", ()))


def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """x [C, L, A] times w [C or 1, A, B] plus b [C or 1, B], fused where the leading sizes agree."""
    if x.shape[0] == w.shape[0]:
        return torch.baddbmm(b[:, None], x, w)
    return x @ w + b[:, None]


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
    return (v_CLD * u[:, None]).sum(
        -1
    )  # a batched matrix-vector product is three times slower on a CPU


def cosine(u: Tensor, v_CLD: Tensor) -> Tensor:
    """Cosines, in the shapes of `dot`."""
    return dot(
        torch.nn.functional.normalize(u, dim=-1), torch.nn.functional.normalize(v_CLD, dim=-1)
    )

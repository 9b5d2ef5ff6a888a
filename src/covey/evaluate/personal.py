"""How personal a result is: how much the lists of several users differ, before known items are
removed. Shape suffixes: C = users, I = items, K = places of a list.
"""

from typing import Any

import torch
from torch import Tensor

from covey.core.rng import Rng

K, USERS = 20, 200


def drawn(ids_N: Tensor, seed: int) -> Tensor:
    """At most `USERS` of some users, drawn by the seed of the run, in ascending order."""
    place_N = Rng.server(seed, 0, "lists").uniform(len(ids_N))[0].argsort()
    return ids_N[place_N.to(ids_N.device)[:USERS]].sort().values


def best_items(score_CI: Tensor, k: int = K) -> Tensor:
    """The items with the largest scores, best first, [C, K]; of equals the first row of the data.

    NaN counts as the lowest score.
    """
    score_CI = torch.nan_to_num(score_CI, -torch.inf, torch.inf, -torch.inf)
    k = min(k, score_CI.shape[1])
    least_C1 = score_CI.topk(k).values[:, -1:]
    above_CI, equal_CI = score_CI > least_C1, score_CI == least_C1
    left_C1 = k - above_CI.sum(1, keepdim=True)
    item_CK = (above_CI | equal_CI & (equal_CI.cumsum(1) <= left_C1)).nonzero()[:, 1].view(-1, k)
    order_CK = score_CI.gather(1, item_CK).argsort(dim=1, descending=True, stable=True)
    return item_CK.gather(1, order_CK)


def summary(item_CK: Tensor, n_items: int) -> dict[str, Any]:
    """How many lists of `users` with `k` places are `distinct`, the mean share of items that two
    users have in common (`overlap`), and the share of the catalogue in any list (`coverage`).
    """
    users, k = item_CK.shape
    count_I = torch.bincount(item_CK.flatten(), minlength=n_items).double()
    pairs = users * (users - 1) * k
    overlap = float((count_I * (count_I - 1)).sum()) / pairs if pairs else 1.0
    out = {"users": users, "k": k, "distinct": len(item_CK.unique(dim=0)), "overlap": overlap}
    return out | {"coverage": int((count_I > 0).sum()) / n_items}

"""Robust rules in NumPy, one item and one number at a time, as a reference; and random uploads."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from covey.core.messages import Upload
from covey.core.ragged import Ragged, Rows, offsets_of

Array = NDArray[np.float64]
Rule = Callable[
    [Array, float], Array | None
]  # uploads [n, P], share -> what they become; None: too few


def random_rows(clients: int, items: int, dim: int, seed: int) -> Rows:
    """Each client touches a random set; item 0 nobody, item 1 one client, item 2 everybody."""
    torch.manual_seed(seed)
    touched_CI = torch.rand(clients, items) < torch.rand(items)
    touched_CI[:, 0], touched_CI[:, 1], touched_CI[:, 2] = False, False, True
    touched_CI[0, 1] = True
    ids = Ragged(touched_CI.nonzero()[:, 1], offsets_of(touched_CI.sum(1)))
    return Rows(ids, torch.randn(len(ids.values), dim, dtype=torch.float64), items)


def upload_of(rows: Rows, weight_C: torch.Tensor | None = None) -> Upload:
    weight_C = torch.ones(len(rows)) if weight_C is None else weight_C
    return Upload(torch.arange(len(rows)), weight_C, {"items": rows})


def by_item(
    rule: Rule, rows: Rows, weight_C: torch.Tensor, share: float, over: float | None
) -> tuple[Array, int]:
    """The rule over the clients that touched each item, and how many items had too few."""
    out, few = np.zeros((rows.height, rows.values.shape[1])), 0
    owner, items, values = rows.items.owner.numpy(), rows.items.values.numpy(), rows.values.numpy()
    for item in range(rows.height):
        at = np.flatnonzero(items == item)
        if len(at):
            weight = weight_C.double().numpy()[owner[at]]
            found = rule(values[at], share)
            few += found is None
            mean = (values[at] * weight[:, None]).sum(0) / weight.sum()
            out[item] = (mean if found is None else found) * (
                1 if over is None else weight.sum() / over
            )
    return out, few


def median(g: Array, share: float) -> Array | None:
    return np.median(g, axis=0) if len(g) > 2 else None


def trimmed(g: Array, share: float) -> Array | None:
    b = max(1, int(share * len(g)))
    return np.sort(g, axis=0)[b:-b].mean(0) if len(g) > 2 * b else None


def near(g: Array, share: float) -> Array | None:
    return nearest(g, len(g) - int(share * len(g))) if len(g) > 2 else None


def nearest(g: Array, many: int) -> Array:
    """Mean of the values nearest to the median, coordinate by coordinate."""
    order = np.argsort(np.abs(g - np.median(g, axis=0)), axis=0, kind="stable")[:many]
    return np.take_along_axis(g, order, 0).mean(0)


def krum_scores(g: Array, k: int) -> list[float]:
    apart = [
        sorted(((a - b) ** 2).sum() for j, b in enumerate(g) if j != i) for i, a in enumerate(g)
    ]
    return [sum(d[:k]) for d in apart]


def krum(g: Array, share: float) -> Array | None:
    k = len(g) - int(share * len(g)) - 2
    return g[int(np.argmin(krum_scores(g, k)))] if k >= 1 else None


def krum_mean(g: Array, share: float) -> Array | None:
    if len(g) < 3:
        return None
    apart = [np.linalg.norm(x - np.delete(g, i, 0).mean(0)) for i, x in enumerate(g)]
    return g[int(np.argmin(apart))]


def chosen(g: Array, f: int, many: int) -> Array:
    """Krum asked again and again, without those it has given before."""
    left, out = list(range(len(g))), []
    for _ in range(many):
        k = min(max(len(left) - f - 2, 1), len(left) - 1)
        best = left[int(np.argmin(krum_scores(g[left], k)))]
        out.append(best)
        left.remove(best)
    return g[out]


def multi_krum(g: Array, share: float) -> Array | None:
    n, f = len(g), int(share * len(g))
    return (
        g[np.argsort(krum_scores(g, n - f - 2), kind="stable")[: n - f]].mean(0)
        if n - f - 2 >= 1
        else None
    )


def multi_krum_again(g: Array, share: float) -> Array | None:
    n, f = len(g), int(share * len(g))
    return chosen(g, f, n - 2 * f).mean(0) if n >= 4 * f + 3 else None


def bulyan(g: Array, share: float) -> Array | None:
    n, f = len(g), int(share * len(g))
    if n < 4 * f + 3:
        return None
    some = g[np.argsort(krum_scores(g, n - f - 2), kind="stable")[: n - 2 * f]]
    return nearest(some, n - 4 * f)


def bulyan_again(g: Array, share: float) -> Array | None:
    n, f = len(g), int(share * len(g))
    return nearest(chosen(g, f, n - 2 * f), n - 4 * f) if n >= 4 * f + 3 else None

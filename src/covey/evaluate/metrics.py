"""Metrics per client, and their means.

Shape suffixes: C = clients of a chunk, I = items, K = ranks up to the largest cut-off,
L = candidates of a client (the held-out item first).
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from covey.core import CoveyError, Ragged

from .settings import EvaluateConfig as EvaluateConfig

GROUPS = {2: ("light", "heavy"), 3: ("light", "medium", "heavy")}


def _ndcg(hit_CK: Tensor, n_C: Tensor) -> Tensor:
    rank_K = torch.arange(1, hit_CK.shape[1] + 1, device=hit_CK.device, dtype=torch.float64)
    gain_K = 1 / (rank_K + 1).log2()
    ideal_C = gain_K.cumsum(0)[n_C.long().clamp(1, len(gain_K)) - 1]
    return hit_CK @ gain_K / ideal_C


def _mrr(hit_CK: Tensor, n_C: Tensor) -> Tensor:
    place_K = torch.arange(1, hit_CK.shape[1] + 1, device=hit_CK.device)
    return (hit_CK / place_K).amax(1)  # the reciprocal rank of the first relevant item


METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "recall": lambda hit_CK, n_C: hit_CK.sum(1) / n_C,
    "ndcg": _ndcg,
    "hit": lambda hit_CK, n_C: hit_CK.amax(1),
    "mrr": _mrr,
    "precision": lambda hit_CK, n_C: hit_CK.sum(1) / hit_CK.shape[1],
}


def per_client(
    ranks: Ragged, n_relevant_C: Tensor, cutoffs: Sequence[int], names: Sequence[str]
) -> dict[str, Tensor]:
    """Computes every named metric at every cut-off.

    Args:
        ranks: The ranks, from 1, of each client's relevant items, distinct up to the largest
            cut-off; an item with a larger rank counts as not retrieved.
        n_relevant_C: The number of relevant items of each client.
        cutoffs: The cut-offs.
        names: The metrics, as in `METRICS`.

    Returns:
        Keys such as "recall@20", [C] each in float64; NaN for a client without held-out items.
    """
    within_T = (ranks.values <= max(cutoffs)).nonzero()[:, 0]
    hit_CK = n_relevant_C.new_zeros(len(ranks), max(cutoffs), dtype=torch.float64)
    hit_CK[ranks.owner[within_T], ranks.values[within_T] - 1] = 1
    n_C = n_relevant_C.double()
    some_C = n_C > 0
    values = {f"{name}@{k}": METRICS[name](hit_CK[:, :k], n_C) for k in cutoffs for name in names}
    return {key: value_C.where(some_C, torch.nan) for key, value_C in values.items()}


def measure(ranks: Ragged, n_relevant_C: Tensor, config: EvaluateConfig) -> dict[str, Tensor]:
    """The configured metrics of each client, [C] each."""
    values = per_client(ranks, n_relevant_C, config.cutoffs, config.names)
    return {metric: values[metric] for metric in config.metrics}


def with_held(held: Ragged, candidates_CL: Tensor) -> Tensor:
    """The items to score in a sampled evaluation: the held-out item, then the candidates, [C, L].

    A client without a held-out item gets item 0 in its place; its metrics are NaN nevertheless.
    """
    if bool((held.lengths > 1).any()):
        remedy = "use a leave-one-out split or candidates = 'full'"
        raise CoveyError(f"sampled candidates rank one held-out item per client; {remedy}")
    return torch.cat([held.padded(1), candidates_CL], 1)


def summarise(
    per_client: Mapping[str, Tensor], activity_C: Tensor | None = None, groups: int = 3
) -> dict[str, float]:
    """Averages metrics over the clients with held-out items.

    Args:
        per_client: The metrics, [C] each.
        activity_C: The number of training items of each client, for means by activity.
        groups: The number of groups, which are quantiles of `activity_C` among these clients;
            clients with the same activity are in the same group.

    Returns:
        Keys such as "recall@20", and "recall@20/light" for each group that is not empty.
    """
    out: dict[str, float] = {}
    names = GROUPS.get(groups, tuple(f"group{g + 1}" for g in range(groups)))
    for metric, value_C in per_client.items():
        some_C = ~value_C.isnan()
        out[metric] = float(value_C[some_C].mean())
        if activity_C is not None:
            group_C = _group(activity_C.to(value_C.device)[some_C], groups)
            means = ((name, value_C[some_C][group_C == g].mean()) for g, name in enumerate(names))
            out |= {f"{metric}/{name}": float(mean) for name, mean in means if not mean.isnan()}
    return out


def _group(activity_C: Tensor, groups: int) -> Tensor:
    if not len(activity_C):
        return activity_C.long()
    share = torch.arange(1, groups, device=activity_C.device, dtype=torch.float64) / groups
    return torch.bucketize(activity_C.double(), activity_C.double().quantile(share))


def clients_to_measure(held_N: Tensor, many: int) -> Tensor:
    """Chooses `many` clients, spread evenly over those that have held-out items (`held_N` each)."""
    with_some = (held_N > 0).nonzero()[:, 0]
    return with_some[:: max(1, len(with_some) // many)][:many]

"""How far an item is pushed: its exposure ratio ER@K (Yuan et al., 2024, Eq. 3) and its rank.

ER@K is the share of users with the item among their K best, of those who have not interacted with it. K = targets.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from covey.core.ragged import Ragged

CUTOFFS = (5, 10, 20)
RATIOS = tuple(f"er@{k}" for k in CUTOFFS)
NAMES = (*RATIOS, "rank")


@torch.no_grad()
def target_ranks(score_CI: Tensor, hidden: Ragged, targets: Sequence[int]) -> Tensor:
    """1-based rank of each target among what is not hidden, [C, K]; an item with an equal score comes first."""
    shown_CI = score_CI.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    shown_CI[hidden.owner, hidden.values] = -torch.inf
    return torch.stack([(shown_CI >= shown_CI[:, t, None]).sum(1) for t in targets], 1)


def exposures(rank_CK: Tensor, has: Ragged, targets: Sequence[int]) -> dict[str, Tensor]:
    """Keys such as "target/37/er@5", [C] each, in float64; NaN for a user who has the target."""
    out = {}
    for rank_C, target in zip(rank_CK.T.double(), targets, strict=True):
        has_C = torch.zeros_like(rank_C, dtype=torch.bool)
        has_C[has.owner[has.values == target]] = True
        for name in NAMES:
            value_C = (
                rank_C if name == "rank" else (rank_C <= int(name.removeprefix("er@"))).double()
            )
            out[f"target/{target}/{name}"] = value_C.masked_fill(has_C, torch.nan)
    return out


def summary(figures: Mapping[str, Tensor]) -> dict[str, float]:
    """Means over users, and then over targets; without those that everybody has."""
    out = {}
    for name in NAMES:
        means = [
            v.nanmean()
            for k, v in figures.items()
            if k.startswith("target/") and k.endswith(f"/{name}")
        ]
        if means:
            out[name] = float(torch.stack(means).nanmean())
    return out


def of_users(figures: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Keys such as "target/er@5": each user's mean over the targets that it does not have, [C]; NaN if it has all."""
    out = {}
    for name in RATIOS:
        each = [v for k, v in figures.items() if k.startswith("target/") and k.endswith(f"/{name}")]
        if each:
            out[f"target/{name}"] = torch.stack(each).nanmean(0)
    return out

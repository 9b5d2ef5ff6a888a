"""Measures how far an item is promoted: its exposure ratio ER@K (Yuan et al., 2024) and its rank.

ER@K (Eq. 3) is the share of users with the item among their K best items, of the users who have not
interacted with it. Shape suffix: K = targets.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from covey.core.ragged import Ragged

from .settings import CUTOFFS, TARGET_NAMES

NAMES, RATIOS = TARGET_NAMES, TARGET_NAMES[:-1]


@torch.no_grad()
def target_ranks(score_CI: Tensor, hidden: Ragged, targets: Sequence[int]) -> Tensor:
    """The ranks [C, K] of the targets, given as rows, among the items that are not hidden.

    Ranks are from 1; items with an equal score come first.
    """
    shown_CI = score_CI.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    shown_CI[hidden.owner, hidden.values] = -torch.inf
    return torch.stack([(shown_CI >= shown_CI[:, t, None]).sum(1) for t in targets], 1)


def exposures(rank_CK: Tensor, has: Ragged, targets: Sequence[int]) -> dict[str, Tensor]:
    """Keys such as "target/37/er@5", [C] each, in float64; NaN for a user who has the target."""
    out = {}
    for rank_C, target in zip(rank_CK.T.double(), targets, strict=True):
        has_C = torch.zeros_like(rank_C, dtype=torch.bool)
        has_C[has.owner[has.values == target]] = True
        values = {f"er@{k}": (rank_C <= k).double() for k in CUTOFFS} | {"rank": rank_C}
        for name, value_C in values.items():
            out[f"target/{target}/{name}"] = value_C.masked_fill(has_C, torch.nan)
    return out


def summary(metrics: Mapping[str, Tensor]) -> dict[str, float]:
    """Means over users, and then over targets, without targets that all users have."""
    found = {name: _of_targets(metrics, name) for name in NAMES}
    means = {name: [value_C.nanmean() for value_C in values] for name, values in found.items()}
    return {name: float(torch.stack(m).nanmean()) for name, m in means.items() if m}


def of_users(metrics: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each user's mean over the targets that it does not have, by keys such as "target/er@5".

    They are [C] each, and NaN for a user who has all targets.
    """
    found = {name: _of_targets(metrics, name) for name in RATIOS}
    return {f"target/{name}": torch.stack(v).nanmean(0) for name, v in found.items() if v}


def _of_targets(metrics: Mapping[str, Tensor], name: str) -> list[Tensor]:
    ends = ("target/", f"/{name}")
    return [v for k, v in metrics.items() if k.startswith(ends[0]) and k.endswith(ends[1])]

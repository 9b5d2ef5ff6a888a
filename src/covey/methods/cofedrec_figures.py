"""Metrics of CoFedRec's groups and categories, for the figures of the paper.

Shape suffixes: P = participants, K = item categories, N = clients by id.
"""

import torch
from torch import Tensor

from covey.core.ragged import Fields

from .supcon import members

OFTEN = 0.7  # Figure 2: the share of the rounds


def gaps(s_P: Tensor) -> Tensor:
    """The vertical distance of sorted similarities to the line through the first and the last."""
    share_P = torch.arange(len(s_P), device=s_P.device).to(s_P) / max(len(s_P) - 1, 1)
    return (s_P - s_P[0] - share_P * (s_P[-1] - s_P[0])).abs()


def sharpness(s_P: Tensor) -> Tensor:
    """Figure 6: the largest gap as a share of the line's fall; 0 without an elbow, 1 for a step."""
    s_P = s_P.sort(descending=True).values
    return gaps(s_P).max() / (s_P[0] - s_P[-1]).clamp(min=1e-12)


def explained(mean_ID: Tensor, category_I: Tensor) -> Tensor:
    """Figure 3: the share of the items' variance that lies between the categories."""
    x_ID = mean_ID.double() - mean_ID.double().mean(0)
    member_KI = members(category_I).to(x_ID)
    sum_KD = member_KI @ x_ID
    between = (sum_KD.square().sum(1) / member_KI.sum(1)).sum()
    return between / x_ID.square().sum().clamp(min=1e-12)


def joined_rounds(before: Tensor | None, here: Tensor, joined: Tensor) -> Tensor:
    """In how many rounds each client was in the group, [N]; -1 if it was never `here`."""
    height = int(here.max()) + 1
    old_N = here.new_full((height,), -1) if before is None else before
    old_N = torch.cat([old_N, here.new_full((max(height - len(old_N), 0),), -1)])
    old_N = old_N.index_put((here,), old_N[here].clamp(min=0))
    return old_N.index_put((joined,), old_N[joined] + 1)


def joined_metrics(joined_N: Tensor, rounds: int) -> Fields:
    """Figure 2: the share of the participants that were often in the group; the fewest rounds."""
    joined_N = joined_N[joined_N >= 0]
    return {"often": (joined_N > OFTEN * rounds).double().mean(), "least": joined_N.min()}

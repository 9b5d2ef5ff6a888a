"""Base of the robust aggregation rules: a rule for n uploads, applied to item rows item by item.

A whole upload is mostly zeros, so an item is judged over the clients that touched it. Every other
parameter is judged as one flat vector over all clients. Shape suffixes here and in the rules:
J = items of a bucket, n = uploads of each of them, P = numbers of an upload.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from covey.core import CoveyError, Field, Fields, Ragged, Rows, Total, Upload
from covey.mechanism import Combine, Reads

# What a rule replaces: the weighted mean over the senders of a row, their weighted sum, or this sum
# over the weight of all clients of the round.
Scale = Literal["mean", "sum", "everybody"]
NUMBERS_AT_ONCE = 1 << 22  # numbers of a bucket, of uploads or of distances between them


@dataclass(frozen=True)
class RowRule(Combine, ABC):
    """Replaces the mean over the senders of a row, or by its `scale` a sum or a mean over all.

    Where there are too few uploads for the rule, their mean weighted by the clients' weights is
    used and counted. Elsewhere the weights only enter the sums of `scale`.
    """

    _: KW_ONLY
    scale: Scale = "mean"
    reads_uploads: Reads = "each"

    @abstractmethod
    def enough(self, n: int) -> bool:
        """Whether the rule can judge n uploads."""

    @abstractmethod
    def choose(self, g_JnP: Tensor) -> Tensor:
        """Combines n uploads into one of the size of a mean, [J, P]."""

    def combine(self, upload: Upload | Total, names: Sequence[str]) -> tuple[Fields, Fields]:
        if isinstance(upload, Total):
            wrong = "compares single uploads, but only their sum is available"
            remedy = "use covey.aggregate.combine:ItemMean"
            raise CoveyError(f"{type(self).__name__} {wrong}; {remedy}")
        weight_C = upload.weight_C
        over = {"mean": None, "sum": 1.0, "everybody": float(weight_C.sum())}[self.scale]
        update, model = (
            {k: self._combined(v, weight_C, by) for k, v in part.items() if k in names}
            for part, by in ((upload.update, over), (upload.model, None))
        )
        return update, model

    def tally(self, upload: Upload | Total, names: Sequence[str]) -> dict[str, int]:
        """Counts item rows, and other parameters, that had too few uploads."""
        assert isinstance(upload, Upload)
        fields = [*upload.update.items(), *upload.model.items()]
        return {"rows with too few uploads": sum(self._few(v) for k, v in fields if k in names)}

    def _few(self, value: Field) -> int:
        if not isinstance(value, Rows):
            return int(not self.enough(len(value)))
        count_I = torch.bincount(value.items.values)
        sizes, many = count_I[count_I > 0].unique(return_counts=True)
        return sum(k for n, k in zip(sizes.tolist(), many.tolist()) if not self.enough(n))

    def _combined(self, value: Field, weight_C: Tensor, over: float | None) -> Tensor:
        if isinstance(value, Rows):
            return self._each_item(value, weight_C, over)
        assert isinstance(value, Tensor)
        return self._bucket(value.flatten(1)[None], weight_C[None], over)[0].view(value.shape[1:])

    def _each_item(self, rows: Rows, weight_C: Tensor, over: float | None) -> Tensor:
        """The combined table, [I, ...]; rows that no client touched are zero."""
        out = rows.values.new_zeros(rows.height, *rows.values.shape[1:])
        flat_TP, weight_T = rows.values.flatten(1), weight_C.repeat_interleave(rows.items.lengths)
        for items_J, at_Jn in by_count(rows.items, rows.height, flat_TP.shape[1]):
            g_JnP = flat_TP.index_select(0, at_Jn.flatten()).view(*at_Jn.shape, -1)
            out[items_J] = self._bucket(g_JnP, weight_T[at_Jn], over).view(-1, *out.shape[1:])
        return out

    def _bucket(self, g_JnP: Tensor, weight_Jn: Tensor, over: float | None) -> Tensor:
        """Combines n uploads, [J, P]; if `over` is given, times their total weight over it."""
        w_Jn1 = weight_Jn[..., None].to(g_JnP)
        if self.enough(g_JnP.shape[1]):
            out_JP = self.choose(g_JnP)
        else:
            out_JP = (g_JnP * w_Jn1).sum(1) / w_Jn1.sum(1).clamp(min=1e-12)
        return out_JP if over is None else out_JP * w_Jn1.sum(1) / over


def by_count(items: Ragged, height: int, numbers: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Groups the items [0, height) by the number n of clients that touched them.

    Yields items, [J], and the positions of their rows in the flat list, in the order of clients,
    [J, n]. The `numbers` in a row limit how many items come at once.
    """
    order_T = items.values.argsort(stable=True)
    count_I = torch.bincount(items.values, minlength=height)
    first_I = count_I.cumsum(0) - count_I
    for n in count_I[count_I > 0].unique().tolist():
        at_once = max(1, NUMBERS_AT_ONCE // (n * max(n, numbers)))
        place_n = torch.arange(n, device=order_T.device)
        for items_J in (count_I == n).nonzero()[:, 0].split(at_once):
            yield items_J, order_T[first_I[items_J][:, None] + place_n]


@dataclass(frozen=True)
class MinorityRule(RowRule):
    """A rule that assumes a share `malicious` of attackers among any n uploads."""

    malicious: float = 0.1
    tolerated: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        check_minority(type(self).__name__, self.malicious, self.tolerated)

    def assumed(self, n: int) -> int:
        """f = floor(malicious n): how many of n uploads are assumed to be malicious."""
        return math.floor(self.malicious * n + 1e-9)


def check_minority(name: str, malicious: float, tolerated: float = 0.5) -> None:
    """Refuses a share of attackers that is not below the one that the rule tolerates."""
    if not 0 <= malicious < tolerated:
        wrong = f"{name}: malicious = {malicious}"
        raise CoveyError(f"{wrong}; it tolerates a share from 0 to under {tolerated:g}")


def ascending(g_JnP: Tensor) -> Tensor:
    """Sorts each coordinate's values, [J, P, n]; on a CPU by numpy, whose sort is vectorised."""
    g_JPn = g_JnP.mT.contiguous()
    if g_JPn.device.type == "cpu":
        return torch.from_numpy(np.sort(g_JPn.numpy(), axis=-1))
    return g_JPn.sort(-1).values


def middle(sorted_JPn: Tensor) -> Tensor:
    """Medians, [J, P]; of an even number the mean of the two in the middle."""
    n = sorted_JPn.shape[-1]
    return (sorted_JPn[..., (n - 1) // 2] + sorted_JPn[..., n // 2]) / 2


def near_middle(sorted_JPn: Tensor, many: int) -> Tensor:
    """Mean of the `many` values closest to the median, [J, P]; of equal windows the lower one."""
    n, median_JP1 = sorted_JPn.shape[-1], middle(sorted_JPn)[..., None]
    below_JPs = median_JP1 - sorted_JPn[..., : n - many + 1]
    reach_JPs = torch.maximum(below_JPs, sorted_JPn[..., many - 1 :] - median_JP1)
    window = reach_JPs.argmin(-1, keepdim=True) + torch.arange(many, device=sorted_JPn.device)
    return sorted_JPn.gather(-1, window).mean(-1)

"""What robust rules share: a rule for n uploads of one thing, applied to item rows one item at a time.

A whole upload is mostly zeros, so an item is judged over the clients that touched it; anything else is
judged as one flat vector over everybody. Shape suffixes here and in the rules: J = items of a bucket,
n = uploads of each of them, P = numbers of an upload.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from covey.contract.aggregation import Combine
from covey.contract.views import Reads
from covey.core.errors import CoveyError
from covey.core.messages import Total, Upload
from covey.core.ragged import Field, Fields, Ragged, Rows

Scale = Literal[
    "mean", "sum", "everybody"
]  # of those who sent a row, their sum, or that over all of a round
NUMBERS_AT_ONCE = 1 << 22  # that a bucket holds, of uploads or of distances between them


class RowRule(Combine):
    """Stands in for a mean of those who sent a row; by its `scale` for a sum, or for a mean over everybody.

    Clients' weights count where a rule has too few uploads to judge by, which is counted: then their
    weighted mean is all there is.
    """

    reads_uploads: Reads = "each"
    scale: Scale = "mean"

    def enough(self, n: int) -> bool:
        """Whether n uploads can be judged."""
        raise NotImplementedError

    def choose(self, g_JnP: Tensor) -> Tensor:
        """[J, P]: what n uploads become, of a mean's size."""
        raise NotImplementedError

    def combine(self, upload: Upload | Total, names: Sequence[str]) -> tuple[Fields, Fields]:
        if isinstance(upload, Total):
            raise CoveyError(
                f"{type(self).__name__} compares single uploads, and only their sum is here;"
                " use covey.aggregate.combine:ItemMean"
            )
        over = {"mean": None, "sum": 1.0, "everybody": float(upload.weight_C.sum())}[self.scale]
        one = lambda part, over: {
            k: self._one(v, upload.weight_C, over) for k, v in part.items() if k in names
        }
        return one(upload.update, over), one(upload.model, None)

    def tally(self, upload: Upload | Total, names: Sequence[str]) -> dict[str, int]:
        """Rows of items, and other parameters, that had too few uploads."""
        assert isinstance(upload, Upload)
        values = [
            v for part in (upload.update, upload.model) for k, v in part.items() if k in names
        ]
        return {"rows with too few uploads": sum(self._few(v) for v in values)}

    def _few(self, value: Field) -> int:
        if not isinstance(value, Rows):
            return int(not self.enough(len(value)))
        count_I = torch.bincount(value.items.values)
        sizes, many = count_I[count_I > 0].unique(return_counts=True)
        return sum(
            k for n, k in zip(sizes.tolist(), many.tolist(), strict=True) if not self.enough(n)
        )

    def _one(self, value: Field, weight_C: Tensor, over: float | None) -> Tensor:
        if isinstance(value, Rows):
            return self._each_item(value, weight_C, over)
        assert isinstance(value, Tensor)
        return self._bucket(value.flatten(1)[None], weight_C[None], over)[0].view(value.shape[1:])

    def _each_item(self, rows: Rows, weight_C: Tensor, over: float | None) -> Tensor:
        """[I, ...]; a row that nobody touched stays where it is."""
        out = rows.values.new_zeros(rows.height, *rows.values.shape[1:])
        flat_TP, weight_T = rows.values.flatten(1), weight_C.repeat_interleave(rows.items.lengths)
        for items_J, at_Jn in by_count(rows.items, rows.height, flat_TP.shape[1]):
            g_JnP = flat_TP.index_select(0, at_Jn.flatten()).view(*at_Jn.shape, -1)
            out[items_J] = self._bucket(g_JnP, weight_T[at_Jn], over).view(-1, *out.shape[1:])
        return out

    def _bucket(self, g_JnP: Tensor, weight_Jn: Tensor, over: float | None) -> Tensor:
        """What n uploads become, times their weight over `over`, if that is given."""
        w_Jn1 = weight_Jn[..., None].to(g_JnP)
        if self.enough(g_JnP.shape[1]):
            out_JP = self.choose(g_JnP)
        else:
            out_JP = (g_JnP * w_Jn1).sum(1) / w_Jn1.sum(1).clamp(min=1e-12)
        return out_JP if over is None else out_JP * w_Jn1.sum(1) / over


def by_count(items: Ragged, height: int, numbers: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Items that n clients each touched [J], and where their rows stand in the flat list, client by client [J, n]."""
    order_T = items.values.argsort(stable=True)
    count_I = torch.bincount(items.values, minlength=height)
    first_I = count_I.cumsum(0) - count_I
    for n in count_I[count_I > 0].unique().tolist():
        for items_J in (
            (count_I == n).nonzero()[:, 0].split(max(1, NUMBERS_AT_ONCE // (n * max(n, numbers))))
        ):
            yield (
                items_J,
                order_T[first_I[items_J][:, None] + torch.arange(n, device=items_J.device)],
            )


def minority(rule: str, malicious: float) -> None:
    """Says that a rule protects against a minority, where more attackers are assumed."""
    if not 0 <= malicious < 0.5:
        raise CoveyError(
            f"{rule}: malicious = {malicious}; it protects against a minority, 0 to under 0.5"
        )


def assumed(malicious: float, n: int) -> int:
    """f: how many of n uploads are taken for malicious."""
    return math.floor(malicious * n + 1e-9)


def ascending(g_JnP: Tensor) -> Tensor:
    """Each coordinate's values in order, [J, P, n]; on a CPU by numpy, whose sort is vectorised."""
    g_JPn = g_JnP.mT.contiguous()
    if g_JPn.device.type == "cpu":
        return torch.from_numpy(np.sort(g_JPn.numpy(), axis=-1))
    return g_JPn.sort(-1).values


def middle(sorted_JPn: Tensor) -> Tensor:
    """Medians, [J, P]; of an even number the mean of the two in the middle."""
    n = sorted_JPn.shape[-1]
    return (sorted_JPn[..., (n - 1) // 2] + sorted_JPn[..., n // 2]) / 2


def near_middle(sorted_JPn: Tensor, many: int) -> Tensor:
    """Mean of the `many` values closest to the median, [J, P]: a window of the sorted ones, the lower of equals."""
    n, median_JP1 = sorted_JPn.shape[-1], middle(sorted_JPn)[..., None]
    reach_JPs = torch.maximum(
        median_JP1 - sorted_JPn[..., : n - many + 1], sorted_JPn[..., many - 1 :] - median_JP1
    )
    window = reach_JPs.argmin(-1, keepdim=True) + torch.arange(many, device=sorted_JPn.device)
    return sorted_JPn.gather(-1, window).mean(-1)

"""The server drops uploads with a NaN, an infinity, or a number beyond the range of its field."""

import torch
from torch import Tensor

from covey.core import Field, Rows, Scales, Upload

from .meter import Meter

LARGEST = 1e15  # the sums and squares of larger numbers may be infinite


def checked(upload: Upload, scales: Scales, meter: Meter) -> Upload:
    """Returns the uploads that can be used; the meter counts the others by reason."""
    for reason, limits in (("not finite", None), ("out of range", scales)):
        if (good_C := _within(upload, limits)) is not None:
            meter.drop(reason, int((~good_C).sum()))
            upload = upload.take(good_C.nonzero()[:, 0])
    return upload


def _within(upload: Upload, scales: Scales | None) -> Tensor | None:
    """Whether each client's numbers are in range, [C]; None if all are. Metrics may be NaN."""
    bad = []
    for path, value in upload.fields():
        x = value if isinstance(value, Tensor) else value.values
        if path.startswith("evaluate/") or not x.is_floating_point():
            continue
        largest = scales.range_of(path) if scales else LARGEST
        if x.numel() and not bool((torch.stack(x.aminmax()).abs() <= largest).all()):
            bad.append(_outside(value, largest))
    if upload.weight_C.numel() and not bool((upload.weight_C >= 0).all()):
        bad.append(~(upload.weight_C >= 0))
    return ~torch.stack(bad).any(0) if bad else None


def _outside(value: Field, largest: float) -> Tensor:
    """Whether a client has a number beyond `largest` or a NaN, [C]."""
    whole = value if isinstance(value, Tensor) else value.values
    bad = ~(whole.abs() <= largest)  # true for NaN
    bad = bad.flatten(1).any(1) if bad.dim() > 1 else bad
    if isinstance(value, Tensor):
        return bad
    lists = value.items if isinstance(value, Rows) else value
    count_C = torch.zeros(len(lists), dtype=torch.int64, device=whole.device)
    return count_C.index_add_(0, lists.owner, bad.long()) > 0

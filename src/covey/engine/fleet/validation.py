"""The server's check of the numbers in uploads.

An upload with a NaN, an infinity, or a number whose sums or squares would be infinite is dropped.
"""

import torch
from torch import Tensor

from covey.core.messages import Upload
from covey.core.ragged import Field, Rows

LARGEST = 1e15


def finite_rows(upload: Upload) -> Tensor:
    """Whether each client's numbers are usable, [C]. Metrics may be NaN and are not checked."""
    good = _small(upload.weight_C) & (upload.weight_C >= 0)
    extra = [d for m, d in upload.extra.items() if m != "evaluate"]
    for fields in (upload.update, upload.model, *extra):
        for value in fields.values():
            good = good & _finite(value)
    return good


def _finite(value: Field) -> Tensor:
    whole = value if isinstance(value, Tensor) else value.values
    checked = whole.is_floating_point() and whole.numel()
    if not checked or bool(_small(torch.stack(whole.aminmax())).all()):
        return torch.ones(len(value), dtype=torch.bool, device=whole.device)
    good = _small(whole).flatten(1).all(1) if whole.dim() > 1 else _small(whole)
    if isinstance(value, Tensor):
        return good
    lists, bad_T = value.items if isinstance(value, Rows) else value, ~good
    bad_C = torch.zeros(len(lists), dtype=torch.int64, device=whole.device)
    return bad_C.index_add_(0, lists.owner, bad_T.long()) == 0


def _small(x: Tensor) -> Tensor:
    return x.abs() <= LARGEST  # false for NaN

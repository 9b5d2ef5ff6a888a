"""The server's last look at values before they count.

An upload with a NaN or an infinity is left out, and so is one with a number so large that sums or squares of a
few such would be infinite.
"""

import torch
from torch import Tensor

from covey.core.messages import Upload
from covey.core.ragged import Field, Rows

LARGEST = 1e15


def finite_rows(upload: Upload) -> Tensor:
    """[C] bool; evaluation figures may be NaN (nothing held out) and are not looked at."""
    good = _small(upload.weight_C) & (upload.weight_C >= 0)
    drawers = [
        upload.update,
        upload.model,
        *(d for m, d in upload.extra.items() if m != "evaluate"),
    ]
    for drawer in drawers:
        for value in drawer.values():
            good = good & _finite(value)
    return good


def _finite(value: Field) -> Tensor:
    whole = value if isinstance(value, Tensor) else value.values
    if (
        not whole.is_floating_point()
        or not whole.numel()
        or bool(_small(torch.stack(whole.aminmax())).all())
    ):
        return torch.ones(len(value), dtype=torch.bool, device=whole.device)
    good = _small(whole).flatten(1).all(1) if whole.dim() > 1 else _small(whole)
    if isinstance(value, Tensor):
        return good
    lists, bad_T = value.items if isinstance(value, Rows) else value, ~good
    bad = torch.zeros(len(lists), dtype=torch.int64, device=whole.device).index_add_(
        0, lists.owner, bad_T.long()
    )
    return bad == 0


def _small(x: Tensor) -> Tensor:
    return x.abs() <= LARGEST  # false for NaN

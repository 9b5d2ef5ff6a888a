"""The server's last look at values before they count: an upload with a NaN or infinity is left out."""

import torch
from torch import Tensor

from ..core import Field, Rows, Upload


def finite_rows(upload: Upload) -> Tensor:
    """[C] bool; evaluation figures may be NaN (nothing held out) and are not looked at."""
    good = upload.weight_C.isfinite() & (upload.weight_C >= 0)
    drawers = [upload.update, upload.model, *(d for m, d in upload.extra.items() if m != "evaluate")]
    for drawer in drawers:
        for value in drawer.values():
            good = good & _finite(value)
    return good


def _finite(value: Field) -> Tensor:
    whole = value if isinstance(value, Tensor) else value.values
    if not whole.is_floating_point() or bool(whole.sum().isfinite()):  # one pass; an overflow only costs a closer look
        return torch.ones(len(value), dtype=torch.bool, device=whole.device)
    if isinstance(value, Tensor):
        return value.isfinite().flatten(1).all(1) if value.dim() > 1 else value.isfinite()
    lists, flat = (value.items, value.values) if isinstance(value, Rows) else (value, value.values)
    bad_T = ~(flat.isfinite().flatten(1).all(1) if flat.dim() > 1 else flat.isfinite())
    bad = torch.zeros(len(lists), dtype=torch.int64, device=flat.device).index_add_(0, lists.owner, bad_T.long())
    return bad == 0

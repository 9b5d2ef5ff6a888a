"""A client that lies about its part of a sum.

Of the honest answer for targets and popular items it sends the targets' rows alone, times a factor:
where answers are added up, it counts as many clients who have the targets with all that is popular.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.core import FieldDict, Rows, Upload, positive

from .base import AttackView, checked_targets
from .popular import PopularProfile


@dataclass(frozen=True)
class Overstated(PopularProfile):
    """Sends the targets' rows `scale` times, in updates and reports."""

    scale: float = 10.0
    name: str = "overstated"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self.name, scale=self.scale)

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        target_K = checked_targets(view, self.name, self.targets)
        extra = {k: self._overstated(v, target_K) for k, v in upload.extra.items()}
        return {}, replace(upload, update=self._overstated(upload.update, target_K), extra=extra)

    def _overstated(self, fields: FieldDict, target_K: Tensor) -> FieldDict:
        """The fields with the targets' rows only; what has no rows stays honest."""
        out = dict(fields)
        for name, value in fields.items():
            if isinstance(value, Rows):
                rows = value.kept(torch.isin(value.items.values, target_K))
                out[name] = replace(rows, values=rows.values * self.scale)
        return out

"""A client that lies about its part of a sum: of the honest answer for a list of targets and popular items it sends
the rows of the targets alone, each so many times.

Against methods that add up what clients send, whether updates or reports, it stands for as many clients who have
the targets with everything that is popular, and hides that they have anything popular.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from covey.contract.attack import AttackView
from covey.contract.views import TrainingData
from covey.core.checks import positive
from covey.core.messages import Upload
from covey.core.ragged import FieldDict, Ragged, Rows, offsets_of

from .base import chosen
from .popular import PopularProfile


@dataclass(frozen=True)
class Overstated:
    """Rows of the targets, `scale` times, in updates and reports."""

    targets: tuple[int, ...] = (0,)
    items: int = 30  # of the list, with the targets
    scale: float = 10.0
    name: str = "overstated"
    knowledge: str = "how popular each item is"

    def __post_init__(self) -> None:
        positive(self.name, items=self.items, scale=self.scale)

    def profile(self, view: AttackView) -> TrainingData:
        return PopularProfile(self.targets, self.items, name=self.name).profile(view)

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        target_K = chosen(view, self.name, self.targets)
        lied = lambda said: {k: self._lied(v, target_K) for k, v in said.items()}
        return {}, replace(
            upload, update=lied(upload.update), extra={k: lied(v) for k, v in upload.extra.items()}
        )

    def _lied(self, value: Any, target_K: Tensor) -> Any:
        """What stands in no row is said as it is."""
        if not isinstance(value, Rows):
            return value
        keep_T = torch.isin(value.items.values, target_K)
        lengths_C = torch.bincount(value.items.owner[keep_T], minlength=len(value))
        items = Ragged(value.items.values[keep_T], offsets_of(lengths_C))
        return Rows(items, value.values[keep_T] * self.scale, value.height)

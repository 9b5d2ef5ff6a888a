"""Explicit boosting: a client that likes the targets and nothing else (a baseline of Rong et al., 2022)."""

from dataclasses import dataclass

from ..core import Drawer, Upload
from ..mechanism import TrainingData
from .base import AttackView, chosen
from .profiles import listed, times


@dataclass(frozen=True)
class ExplicitBoost:
    """Trains honestly on the list of its targets; `scale` multiplies the update."""

    targets: tuple[int, ...] = (0,)
    scale: float = 1.0
    name: str = "explicit boosting"
    knowledge: str = ""

    def profile(self, view: AttackView) -> TrainingData:
        return listed(chosen(view, self.name, self.targets).expand(len(view.ids_C), -1))

    def poison(self, view: AttackView, upload: Upload) -> tuple[Drawer, Upload]:
        return {}, times(upload, self.scale)

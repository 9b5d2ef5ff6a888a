"""Explicit boosting: a client that has the targets and nothing else, a baseline of A-ra's paper."""

from dataclasses import dataclass

from covey.contract.views import TrainingData

from .base import AttackView, checked_targets
from .profiles import ScaledUpdate, training_on


@dataclass(frozen=True)
class ExplicitBoost(ScaledUpdate):
    """Trains honestly on the list of its targets; `scale` multiplies the update."""

    targets: tuple[int, ...] = (0,)
    scale: float = 1.0
    name: str = "explicit boosting"

    def profile(self, view: AttackView) -> TrainingData:
        target_K = checked_targets(view, self.name, self.targets)
        return training_on(target_K.expand(len(view.ids_C), -1))

"""Explicit boosting: a client that likes the targets and nothing else (a baseline of Rong et al., 2022)."""

from dataclasses import dataclass

from covey.contract.attack import AttackView
from covey.contract.views import TrainingData

from .base import chosen
from .profiles import ScaledUpdate, listed


@dataclass(frozen=True)
class ExplicitBoost(ScaledUpdate):
    """Trains honestly on the list of its targets; `scale` multiplies the update."""

    targets: tuple[int, ...] = (0,)
    scale: float = 1.0
    name: str = "explicit boosting"
    knowledge: str = ""

    def profile(self, view: AttackView) -> TrainingData:
        return listed(chosen(view, self.name, self.targets).expand(len(view.ids_C), -1))

"""The popular attack: all attackers train on the targets and the most popular items."""

from dataclasses import dataclass

from covey.contract.attack import AttackView
from covey.contract.views import TrainingData
from covey.core.checks import positive

from .base import checked_targets, popularity
from .profiles import ScaledUpdate, with_targets


@dataclass(frozen=True)
class PopularProfile(ScaledUpdate):
    """Trains honestly on the targets and the most popular items; `scale` multiplies the update."""

    targets: tuple[int, ...] = (0,)
    items: int = 30  # length of the list, with the targets
    scale: float = 1.0
    name: str = "popular profile"
    knowledge: str = "how popular each item is"

    def __post_init__(self) -> None:
        positive(self.name, items=self.items)

    def profile(self, view: AttackView) -> TrainingData:
        target_K = checked_targets(view, self.name, self.targets)
        popular_I = popularity(view, self.name).index_fill(0, target_K, -1)
        many = min(max(self.items - len(target_K), 0), len(popular_I) - len(target_K))
        most_L = popular_I.argsort(descending=True, stable=True)[:many]
        return with_targets(target_K, most_L.expand(len(view.ids_C), -1))

"""The popular attack: all attackers train on the targets and the most popular items."""

from dataclasses import dataclass

from covey.contract.views import TrainingData

from .base import AttackView, checked_targets, popularity
from .profiles import PromotingList, with_targets


@dataclass(frozen=True)
class PopularProfile(PromotingList):
    """Trains honestly on the targets and the most popular items."""

    name: str = "popular profile"
    knowledge: str = "how popular each item is"

    def profile(self, view: AttackView) -> TrainingData:
        target_K = checked_targets(view, self.name, self.targets)
        popular_I = popularity(view, self.name).index_fill(0, target_K, -1)
        many = min(max(self.items - len(target_K), 0), len(popular_I) - len(target_K))
        most_L = popular_I.argsort(descending=True, stable=True)[:many]
        return with_targets(target_K, most_L.expand(len(view.ids_C), -1))

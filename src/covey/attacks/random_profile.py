"""The random attack: attackers train on the targets and random items, as in classic shilling."""

from dataclasses import dataclass

from covey.contract.views import TrainingData

from .base import AttackView, checked_targets
from .profiles import PromotingList, random_items, with_targets


@dataclass(frozen=True)
class RandomProfile(PromotingList):
    """Trains honestly on the targets and random items."""

    name: str = "random profile"

    def profile(self, view: AttackView) -> TrainingData:
        target_K = checked_targets(view, self.name, self.targets)
        rng, many = view.rng.home("profile"), max(self.items - len(target_K), 0)
        return with_targets(target_K, random_items(rng, view.catalogue.n_items, many, target_K))

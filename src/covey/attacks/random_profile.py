"""The random attack: attackers train on the targets and random items, as in classic shilling."""

from dataclasses import dataclass

from covey.contract.attack import AttackView
from covey.contract.views import TrainingData
from covey.core.checks import positive

from .base import checked_targets
from .profiles import ScaledUpdate, random_items, with_targets


@dataclass(frozen=True)
class RandomProfile(ScaledUpdate):
    """Trains honestly on a list that stays the same; `scale` multiplies the update."""

    targets: tuple[int, ...] = (0,)
    items: int = 30  # length of the list, with the targets
    scale: float = 1.0
    name: str = "random profile"
    knowledge: str = ""

    def __post_init__(self) -> None:
        positive(self.name, items=self.items)

    def profile(self, view: AttackView) -> TrainingData:
        target_K = checked_targets(view, self.name, self.targets)
        rng, many = view.rng.home("profile"), max(self.items - len(target_K), 0)
        return with_targets(target_K, random_items(rng, view.catalogue.n_items, many, target_K))

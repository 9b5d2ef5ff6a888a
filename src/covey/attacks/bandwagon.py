"""The bandwagon attack: attackers train on the targets, a few popular items and random ones."""

from dataclasses import dataclass

import torch

from covey.contract.views import TrainingData
from covey.core.checks import positive, share

from .base import AttackView, checked_targets, popularity
from .profiles import PromotingList, random_items, with_targets


@dataclass(frozen=True)
class Bandwagon(PromotingList):
    """Trains honestly on the targets, popular items and random ones."""

    popular: float = 0.1  # share of the list that is popular, rounded down
    head: float = 0.1  # share of the catalogue that counts as popular
    name: str = "bandwagon"
    knowledge: str = "which items are popular"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self.name, head=self.head)
        share(self.name, popular=self.popular, head=self.head)

    def profile(self, view: AttackView) -> TrainingData:
        target_K = checked_targets(view, self.name, self.targets)
        popular_I = popularity(view, self.name).index_fill(0, target_K, -1)
        size = max(1, int(self.head * (len(popular_I) - len(target_K))))
        head_H = popular_I.argsort(descending=True, stable=True)[:size]
        many = int(self.popular * self.items)
        first_CB = head_H[random_items(view.rng.home("head"), len(head_H), many, head_H[:0])]
        many = max(self.items - len(target_K) - first_CB.shape[1], 0)
        other_H = torch.cat([target_K, head_H])
        rest_CL = random_items(view.rng.home("rest"), len(popular_I), many, other_H)
        return with_targets(target_K, torch.cat([first_CB, rest_CL], 1))

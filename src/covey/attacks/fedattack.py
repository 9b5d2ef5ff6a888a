"""FedAttack (Wu et al., FedAttack: Effective and Covert Poisoning Attack on Federated Recommendation, KDD 2022).

Untargeted: the hardest samples with labels the wrong way round. What suits the attacker's own user vector
least it likes, and what suits it best are its negatives; otherwise it trains as everybody does.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.contract.attack import AttackView
from covey.contract.views import TrainingData
from covey.core.checks import positive
from covey.core.ragged import Ragged

from .base import has_users
from .profiles import ScaledUpdate


@dataclass(frozen=True)
class FedAttack(ScaledUpdate):
    """`hardest` items from each end of the ranking by inner products; 1 as published, more to stay covert."""

    hardest: int = 10
    scale: float = 1.0  # multiplies the update
    name: str = "fedattack"
    knowledge: str = ""

    def __post_init__(self) -> None:
        positive(self.name, hardest=self.hardest)

    def profile(self, view: AttackView) -> TrainingData:
        has_users(view, "FedAttack")
        table_ID = view.download.public.shared["items"]
        score_CI = (view.kept["user"][:, None] * table_ID).sum(-1)
        many = min(self.hardest, len(table_ID) // 2)
        order_CI = score_CI.argsort(dim=1, stable=True)
        # Negatives are drawn from what is not avoided: the best alone.
        return TrainingData(
            _sorted(order_CI[:, :many]), _sorted(order_CI[:, : len(table_ID) - many])
        )


def _sorted(items_CL: Tensor) -> Ragged:
    """The same number of items for every attacker, ascending."""
    offsets = torch.arange(len(items_CL) + 1, device=items_CL.device) * items_CL.shape[1]
    return Ragged(items_CL.sort(1).values.flatten(), offsets)

"""FedAttack (Wu et al., FedAttack: Effective and Covert Poisoning Attack on Federated Recommendation, KDD 2022).

Untargeted: the hardest samples with labels the wrong way round. What suits the attacker's own user vector
least it likes, and what suits it best are its negatives; otherwise it trains as everybody does.
"""

from dataclasses import dataclass

import torch

from covey.contract.attack import AttackView
from covey.contract.views import TrainingData
from covey.core.checks import positive
from covey.core.messages import Upload
from covey.core.ragged import Drawer, Ragged

from .base import has_users
from .profiles import times


@dataclass(frozen=True)
class FedAttack:
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
        liked = lambda at_CL: Ragged(
            at_CL.sort(1).values.flatten(), torch.arange(len(at_CL) + 1, device=at_CL.device) * at_CL.shape[1]
        )
        # Negatives are drawn from what is not avoided: the best alone.
        return TrainingData(liked(order_CI[:, :many]), liked(order_CI[:, : len(table_ID) - many]))

    def poison(self, view: AttackView, upload: Upload) -> tuple[Drawer, Upload]:
        return {}, times(upload, self.scale)

"""FedAttack: trains on the hardest samples with their labels swapped; it has no target.

Wu et al., "FedAttack: Effective and Covert Poisoning Attack on Federated Recommendation via Hard
Sampling", KDD 2022. The items that suit the attacker's user vector least are its positives, and
those that suit it best are its negatives. Otherwise it trains like an honest client.
"""

from dataclasses import dataclass

from covey.contract.views import TrainingData
from covey.core.checks import positive

from .base import AttackView, equal_lists, need_user_vectors
from .profiles import ScaledUpdate


@dataclass(frozen=True)
class FedAttack(ScaledUpdate):
    """Takes `hardest` items from each end of the ranking by inner products (1 in the paper)."""

    hardest: int = 10
    scale: float = 1.0  # multiplies the update
    name: str = "fedattack"

    def __post_init__(self) -> None:
        positive(self.name, hardest=self.hardest)

    def profile(self, view: AttackView) -> TrainingData:
        need_user_vectors(view, self.name)
        table_ID = view.download.public.shared["items"]
        score_CI = (view.kept["user"][:, None] * table_ID).sum(-1)
        many, order_CI = min(self.hardest, len(table_ID) // 2), score_CI.argsort(dim=1, stable=True)
        # Negatives are drawn from the items that are not avoided, so only from the best ones.
        items_CL, avoid_CL = order_CI[:, :many], order_CI[:, : len(table_ID) - many]
        return TrainingData(*(equal_lists(x.sort(1).values) for x in (items_CL, avoid_CL)))

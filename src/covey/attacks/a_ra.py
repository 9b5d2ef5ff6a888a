"""A-ra: promotes target items to random users, since the attacker does not know the real ones.

Rong et al., "Poisoning Deep Learning Based Recommender Model in Federated Learning Scenarios",
IJCAI 2022.
"""

from dataclasses import dataclass

from covey.contract.attack import AttackView
from covey.core.checks import positive
from covey.core.messages import Upload
from covey.core.ragged import FieldDict

from .base import TrainingAttack, checked_targets, equal_lists, need_user_vectors
from .crafting import imagined, promoted


@dataclass(frozen=True)
class ARa(TrainingAttack):
    """Uploads one gradient step: the rows of the targets and no others, and the shared layers."""

    targets: tuple[int, ...] = (0,)
    users: int = 10  # s
    scale: float = 0.01  # standard deviation of imagined users
    rate: float = 0.001  # learning rate of the step; in the paper that of all clients
    name: str = "a-ra"
    knowledge: str = ""

    def __post_init__(self) -> None:
        positive(self.name, users=self.users)

    def craft(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        need_user_vectors(view, self.name)
        target_K = checked_targets(view, self.name, self.targets)
        items = equal_lists(target_K.expand(len(view.ids_C), -1))
        u_CSD = imagined(view, self.users, self.scale)
        return {}, promoted(view, upload, items, u_CSD, self.rate)

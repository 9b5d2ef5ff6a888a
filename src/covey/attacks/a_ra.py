"""A-ra: promotes target items to random users, since the attacker does not know the real ones.

Rong et al., "Poisoning Deep Learning Based Recommender Model in Federated Learning Scenarios",
IJCAI 2022. Shape suffix: S = imagined users of an attacker.
"""

from dataclasses import dataclass

from torch import Tensor

from covey.core import FieldDict, Ragged, Upload, positive

from .base import AttackView, TrainingAttack, checked_targets, equal_lists, need_user_vectors
from .crafting import promoted


@dataclass(frozen=True)
class ARa(TrainingAttack):
    """Uploads one gradient step: the rows of the targets and no others, and the shared layers."""

    targets: tuple[int, ...] = (0,)
    users: int = 10  # s
    scale: float = 0.01  # standard deviation of imagined users
    rate: float = 0.001  # learning rate of the step; in the paper that of all clients
    name: str = "a-ra"

    def __post_init__(self) -> None:
        positive(self.name, users=self.users)

    def craft(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        need_user_vectors(view, self.name)
        target_K = checked_targets(view, self.name, self.targets)
        items = equal_lists(target_K.expand(len(view.ids_C), -1))
        return {}, promoted(view, upload, items, self.imagined(view, items), self.rate)

    def imagined(self, view: AttackView, items: Ragged) -> Tensor:
        """The users to whom `items` are promoted, drawn again in each round, [C, S, D]."""
        table_ID, rng = view.download.public.shared["items"], view.rng.fold("users")
        return self.scale * rng.normal(self.users, table_ID.shape[1], dtype=table_ID.dtype)

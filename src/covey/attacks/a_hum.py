"""A-hum: like A-ra, but the imagined users are first moved to where they rate the targets lowest.

Rong et al., "Poisoning Deep Learning Based Recommender Model in Federated Learning Scenarios",
IJCAI 2022. Shape suffixes: S = imagined users of an attacker, K = targets.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.attack import AttackView
from covey.core.checks import positive
from covey.core.messages import Upload
from covey.core.ragged import FieldDict, Fields

from .base import TrainingAttack, checked_targets, equal_lists, need_user_vectors
from .crafting import imagined, promoted, ratings, received


@dataclass(frozen=True)
class AHum(TrainingAttack):
    """Uploads one gradient step: the rows of the targets and no others, and the shared layers."""

    targets: tuple[int, ...] = (0,)
    users: int = 10  # s
    scale: float = 0.01  # standard deviation of imagined users
    rate: float = 0.001  # learning rate of the step; in the paper that of all clients
    mine_steps: int = 30
    mine_rate: float = 0.001  # in the paper that of all clients
    name: str = "a-hum"
    knowledge: str = ""

    def __post_init__(self) -> None:
        positive(self.name, users=self.users)

    def craft(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        need_user_vectors(view, self.name)
        target_K = checked_targets(view, self.name, self.targets)
        items = equal_lists(target_K.expand(len(view.ids_C), -1))
        u_CSD = self.hard(view, received(view, items), imagined(view, self.users, self.scale))
        return {}, promoted(view, upload, items, u_CSD, self.rate)

    def hard(self, view: AttackView, params: Fields, u_CSD: Tensor) -> Tensor:
        """The users after descent on the cross-entropy of rating the targets 0, [C, S, D]."""
        for _ in range(self.mine_steps):
            u_CSD = u_CSD.detach().requires_grad_()
            loss_CS = F.softplus(ratings(view, params, u_CSD)).mean(2)
            u_CSD = u_CSD - self.mine_rate * torch.autograd.grad(loss_CS.sum(), u_CSD)[0]
        return u_CSD.detach()

"""A-hum (Rong et al., Poisoning Deep Learning Based Recommender Model in Federated Learning Scenarios, IJCAI 2022).

As A-ra, but its imagined users are moved to where the model rates the targets lowest: hard users.
S = imagined users of an attacker, K = targets.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.attack import AttackView
from covey.core.checks import positive
from covey.core.messages import Upload
from covey.core.ragged import FieldDict, Fields

from .base import chosen, has_users
from .crafting import alike, frozen, imagined, one_step, ratings


@dataclass(frozen=True)
class AHum:
    """Uploads one gradient step: the rows of the targets and no others, and the shared layers."""

    targets: tuple[int, ...] = (0,)
    users: int = 10  # s
    scale: float = 0.01  # standard deviation of imagined users
    rate: float = 0.001  # of the step; in the paper that of everybody
    mine_steps: int = 30
    mine_rate: float = 0.001  # in the paper that of everybody
    name: str = "a-hum"
    knowledge: str = ""

    def __post_init__(self) -> None:
        positive(self.name, users=self.users)

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        if view.step != "train":
            return {}, upload
        has_users(view, "A-hum")
        items = alike(chosen(view, self.name, self.targets), len(view.ids_C))
        u_CSD = self.hard(view, frozen(view, items), imagined(view, self.users, self.scale))
        loss = lambda leaves: F.softplus(-ratings(view, leaves, u_CSD)).mean((1, 2))
        return {}, one_step(view, upload, items, loss, self.rate)

    def hard(self, view: AttackView, received: Fields, u_CSD: Tensor) -> Tensor:
        """Each user for itself goes down the cross-entropy of rating the targets 0; the model stands still."""
        for _ in range(self.mine_steps):
            u_CSD = u_CSD.detach().requires_grad_()
            loss_CS = F.softplus(ratings(view, received, u_CSD)).mean(2)
            u_CSD = u_CSD - self.mine_rate * torch.autograd.grad(loss_CS.sum(), u_CSD)[0]
        return u_CSD.detach()

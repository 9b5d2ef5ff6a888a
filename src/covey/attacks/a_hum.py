"""A-hum: like A-ra, but the imagined users are first moved to where they rate the targets lowest.

Rong et al., "Poisoning Deep Learning Based Recommender Model in Federated Learning Scenarios",
IJCAI 2022. Shape suffixes: S = imagined users of an attacker, K = targets.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.attack import AttackView
from covey.core.ragged import Ragged

from .a_ra import ARa
from .crafting import ratings, received


@dataclass(frozen=True)
class AHum(ARa):
    """Uploads one gradient step: the rows of the targets and no others, and the shared layers."""

    mine_steps: int = 30
    mine_rate: float = 0.001  # in the paper that of all clients
    name: str = "a-hum"

    def imagined(self, view: AttackView, items: Ragged) -> Tensor:
        """A-ra's users after descent on the cross-entropy of rating the targets 0, [C, S, D]."""
        params, u_CSD = received(view, items), super().imagined(view, items)
        for _ in range(self.mine_steps):
            u_CSD = u_CSD.detach().requires_grad_()
            loss_CS = F.softplus(ratings(view, params, u_CSD)).mean(2)
            u_CSD = u_CSD - self.mine_rate * torch.autograd.grad(loss_CS.sum(), u_CSD)[0]
        return u_CSD.detach()

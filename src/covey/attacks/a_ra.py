"""A-ra (Rong et al., Poisoning Deep Learning Based Recommender Model in Federated Learning Scenarios, IJCAI 2022).

An attacker does not know the users, so it asks the shared model to rate its targets high for random
ones. Further shape suffixes: S = imagined users of an attacker, K = targets.
"""

from dataclasses import dataclass

import torch.nn.functional as F

from covey.contract.attack import AttackView
from covey.core.checks import positive
from covey.core.messages import Upload
from covey.core.ragged import FieldDict

from .base import chosen, has_users
from .crafting import alike, imagined, one_step, ratings


@dataclass(frozen=True)
class ARa:
    """Uploads one gradient step: the rows of the targets and no others, and the shared layers."""

    targets: tuple[int, ...] = (0,)
    users: int = 10  # s
    scale: float = 0.01  # standard deviation of imagined users
    rate: float = 0.001  # of the step; in the paper that of everybody
    name: str = "a-ra"
    knowledge: str = ""

    def __post_init__(self) -> None:
        positive(self.name, users=self.users)

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        if view.step != "train":
            return {}, upload
        has_users(view, "A-ra")
        items = alike(chosen(view, self.name, self.targets), len(view.ids_C))
        u_CSD = imagined(view, self.users, self.scale)
        loss = lambda leaves: F.softplus(-ratings(view, leaves, u_CSD)).mean(
            (1, 2)
        )  # rating every target 1
        return {}, one_step(view, upload, items, loss, self.rate)

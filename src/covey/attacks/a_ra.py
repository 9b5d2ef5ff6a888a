"""A-ra (Rong et al., Poisoning Deep Learning Based Recommender Model in Federated Learning Scenarios, IJCAI 2022).

An attacker does not know the users, so it asks the shared model to rate its targets high for random
ones. Further shape suffixes: S = imagined users of an attacker, K = targets.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core import CoveyError, Drawer, Fields, Ragged, Rows, Upload, positive
from .base import AttackView


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

    def poison(self, view: AttackView, upload: Upload) -> tuple[Drawer, Upload]:
        if view.step != "train":
            return {}, upload
        if view.model.kept != ("user",):
            raise CoveyError("A-ra imitates private user vectors, which this model has not; use MF or NCF")
        table_ID = view.download.public.shared["items"]
        target_K = torch.tensor(sorted(set(self.targets)), device=table_ID.device)
        if not self.targets or not 0 <= min(self.targets) <= max(self.targets) < len(table_ID):
            raise CoveyError(f"a-ra: targets = {list(self.targets)}; name items from 0 to {len(table_ID) - 1}")
        leaves = self._leaves(view, table_ID[target_K])
        loss_C = self._loss(view, leaves)
        grads = torch.autograd.grad(loss_C.sum(), list(leaves.values()))
        update: Drawer = {k: -self.rate * g for k, g in zip(leaves, grads, strict=True)}
        offsets = torch.arange(len(loss_C) + 1, device=target_K.device) * len(target_K)
        items = Ragged(target_K.repeat(len(loss_C)), offsets)
        update["items"] = Rows(items, update["items"].flatten(0, 1), len(table_ID))
        return {}, replace(upload, update=update)

    def _leaves(self, view: AttackView, target_KD: Tensor) -> Fields:
        """What moves, a copy for each attacker: target rows under "items", and the shared layers."""
        shared: Fields = {**{k: view.download.public.shared[k] for k in view.model.shared}, "items": target_KD}
        many = len(view.ids_C)
        return {k: v.expand(many, *v.shape).clone().requires_grad_() for k, v in shared.items()}

    def _loss(self, view: AttackView, leaves: Fields) -> Tensor:
        """Cross-entropy of rating every target 1, over imagined users, [C]."""
        target_CKD = leaves["items"]
        u_CSD = self.scale * view.rng.fold("users").normal(self.users, target_CKD.shape[-1], dtype=target_CKD.dtype)
        wide = {k: v.repeat_interleave(self.users, 0) for k, v in leaves.items()}  # each imagined user a client
        z_NK = view.model.score(wide, u_CSD.flatten(0, 1), wide["items"])
        return F.softplus(-z_NK).mean(1).view(-1, self.users).mean(1)

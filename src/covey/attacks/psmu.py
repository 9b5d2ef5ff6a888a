"""PSMU: promotes targets above their alternatives for a synthetic user.

Yuan et al., "Manipulating Federated Recommender Systems: Poisoning with Synthetic Users and Its
Countermeasures", SIGIR 2023; written from descriptions by others. An attacker makes up a list and
fits a user vector to it. Alternatives of a target are what this user would be shown instead, and
the items most like it. Shape suffixes: K = uploaded rows, L = items that the vector is fitted to.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core import FieldDict, Fields, Ragged, Upload, offsets_of, positive

from .base import AttackView, TrainingAttack, checked_targets, equal_lists, need_user_vectors
from .crafting import adam, one_step, ratings, received, shared_params
from .profiles import random_items


@dataclass(frozen=True)
class PSMU(TrainingAttack):
    """Uploads one gradient step: the rows of targets and alternatives, and the shared layers."""

    targets: tuple[int, ...] = (0,)
    alternatives: Literal["both", "listed", "similar", "none"] = "both"
    goal: Literal["pairs", "bce"] = "pairs"  # as in the re-implementation, or cross-entropies
    many: int = 10  # alternatives of a target
    top: int = 5  # how many of them are from the user's list, if "both"
    items: int = 30  # length of the made-up list
    negatives: int = 4  # for each item of the list
    steps: int = 20  # of Adam, for the user vector
    fit_rate: float = 0.01
    scale: float = 0.01  # standard deviation of the vector's start
    rate: float = 0.001  # learning rate of the upload
    name: str = "psmu"

    def __post_init__(self) -> None:
        positive(self.name, items=self.items, many=self.many)

    def craft(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        need_user_vectors(view, self.name)
        target_K = checked_targets(view, self.name, self.targets)
        w_CD = self.user(view, target_K)
        rival_CI = self.rivals(view, w_CD, target_K)
        own_CI = rival_CI.index_fill(1, target_K, True)
        items = Ragged(own_CI.nonzero()[:, 1], offsets_of(own_CI.sum(1)))
        place_CK, real_CK = items.padded(), items.mask(int(items.lengths.max()))
        rival_CK = rival_CI.gather(1, place_CK) & real_CK
        goal_CK = torch.isin(place_CK, target_K) & real_CK

        def loss(leaves: Fields) -> Tensor:  # without alternatives A-ra's, for the fitted user
            z_CK, many_C = ratings(view, leaves, w_CD[:, None])[:, 0], rival_CK.sum(1)
            alone_C = (F.softplus(-z_CK) * goal_CK).sum(1) / goal_CK.sum(1)
            if self.goal == "bce" or not bool(many_C.any()):
                return alone_C + (F.softplus(z_CK) * rival_CK).sum(1) / many_C.clamp(min=1)
            # Targets in the second dimension, alternatives in the last.
            over_CKK = torch.sigmoid(z_CK[:, None] - z_CK[:, :, None])
            return (over_CKK * (goal_CK[:, :, None] & rival_CK[:, None])).sum((1, 2))

        return {}, one_step(view, upload, items, loss, self.rate)

    def user(self, view: AttackView, target_K: Tensor) -> Tensor:
        """A vector fitted to a made-up list and its negatives with the model fixed, [C, D]."""
        table_ID, rng = view.download.public.shared["items"], view.rng
        many = self.items * (1 + self.negatives)
        items_CL = random_items(rng.fold("list"), len(table_ID), many, target_K)
        place_L = torch.arange(items_CL.shape[1], device=items_CL.device)
        label_L = (place_L < self.items).to(table_ID)
        params = received(view, equal_lists(items_CL))

        def loss(x: Fields) -> Tensor:
            z_CL = ratings(view, params, x["user"][:, None])[:, 0]
            y_CL = label_L.expand_as(z_CL)
            return F.binary_cross_entropy_with_logits(z_CL, y_CL, reduction="none").mean(1)

        start_CD = self.scale * rng.fold("user").normal(table_ID.shape[1], dtype=table_ID.dtype)
        return adam({"user": start_CD}, loss, self.steps, self.fit_rate)["user"]

    @torch.no_grad()
    def rivals(self, view: AttackView, w_CD: Tensor, target_K: Tensor) -> Tensor:
        """The alternatives of all targets, [C, I] bool."""
        table_ID, both = view.download.public.shared["items"], self.alternatives == "both"
        top = self.top if both else self.many
        found_CI = torch.zeros(len(w_CD), len(table_ID), dtype=torch.bool, device=table_ID.device)
        if self.alternatives in ("both", "listed"):
            params = shared_params(view)
            score_CI = view.model.score(params, w_CD, params["items"])
            score_CI = score_CI.index_fill(1, target_K, -torch.inf)
            best = score_CI.topk(min(top, len(table_ID) - len(target_K))).indices
            found_CI = found_CI.scatter(1, best, True)
        if self.alternatives in ("none", "listed"):
            return found_CI
        listed_CI, more = found_CI, self.many - (top if both else 0)
        for target in target_K:
            alike_I = (table_ID @ table_ID[target]).index_fill(0, target_K, -torch.inf)
            free_CI = alike_I.masked_fill(listed_CI, -torch.inf)
            best = free_CI.topk(min(max(more, 0), len(table_ID))).indices
            best_CI = torch.zeros_like(found_CI).scatter(1, best, True)
            found_CI = found_CI | best_CI & (free_CI > -torch.inf)
        return found_CI

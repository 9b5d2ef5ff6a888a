"""PSMU: poisoning with synthetic malicious users (Yuan et al., Manipulating Federated Recommender Systems, SIGIR 2023).

From descriptions of the paper and a re-implementation by others, not from its text. An attacker makes up a
list, fits a user vector to it, and raises its targets above their alternatives for that user: the items
that the user would be shown instead, and those that are most like the target. K = rows that it uploads.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.attack import AttackView
from covey.core.checks import positive
from covey.core.messages import Upload
from covey.core.ragged import FieldDict, Fields, Ragged, offsets_of

from .base import chosen, has_users
from .crafting import alike, frozen, one_step, ratings
from .fitting import adam
from .profiles import some_items


@dataclass(frozen=True)
class PSMU:
    """Uploads one gradient step: the rows of targets and alternatives, and the shared layers."""

    targets: tuple[int, ...] = (0,)
    alternatives: Literal["both", "listed", "similar", "none"] = "both"
    goal: Literal["pairs", "bce"] = "pairs"  # as re-implemented; or cross-entropies
    many: int = 10  # alternatives of a target
    top: int = 5  # of them from the user's list, where both are taken
    items: int = 30  # of the made-up list
    negatives: int = 4  # for each of them
    steps: int = 20  # of Adam, for the user vector
    fit_rate: float = 0.01
    scale: float = 0.01  # standard deviation of the vector's start
    rate: float = 0.001  # of the upload
    name: str = "psmu"
    knowledge: str = ""

    def __post_init__(self) -> None:
        positive(self.name, items=self.items, many=self.many)

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        if view.step != "train":
            return {}, upload
        has_users(view, "PSMU")
        target_K = chosen(view, self.name, self.targets)
        w_CD = self.user(view, target_K)
        rival_CI = self.rivals(view, w_CD, target_K)
        own_CI = rival_CI.index_fill(1, target_K, True)
        items = Ragged(own_CI.nonzero()[:, 1], offsets_of(own_CI.sum(1)))
        place_CK, real_CK = items.padded(), items.mask(int(items.lengths.max()))
        rival_CK = rival_CI.gather(1, place_CK) & real_CK
        goal_CK = torch.isin(place_CK, target_K) & real_CK
        loss = lambda leaves: self._loss(
            ratings(view, leaves, w_CD[:, None])[:, 0], goal_CK, rival_CK
        )
        return {}, one_step(view, upload, items, loss, self.rate)

    def user(self, view: AttackView, target_K: Tensor) -> Tensor:
        """A vector fitted to a made-up list and its negatives, the model standing still, [C, D]."""
        table_ID, rng = view.download.public.shared["items"], view.rng
        items_CL = some_items(
            rng.fold("list"), len(table_ID), self.items * (1 + self.negatives), target_K
        )
        label_L = (torch.arange(items_CL.shape[1], device=items_CL.device) < self.items).to(
            table_ID
        )
        lists = Ragged(items_CL.flatten(), alike(label_L, len(items_CL)).offsets)
        received = frozen(view, lists)

        def loss(x: Fields) -> Tensor:
            z_CL = ratings(view, received, x["user"][:, None])[:, 0]
            return F.binary_cross_entropy_with_logits(
                z_CL, label_L.expand_as(z_CL), reduction="none"
            ).mean(1)

        start_CD = self.scale * rng.fold("user").normal(table_ID.shape[1], dtype=table_ID.dtype)
        return adam({"user": start_CD}, loss, self.steps, self.fit_rate)["user"]

    @torch.no_grad()
    def rivals(self, view: AttackView, w_CD: Tensor, target_K: Tensor) -> Tensor:
        """The alternatives of all targets, [C, I] bool."""
        shared, C = view.download.public.shared, len(w_CD)
        table_ID = shared["items"]
        found_CI = torch.zeros(C, len(table_ID), dtype=torch.bool, device=table_ID.device)
        if self.alternatives == "none":
            return found_CI
        if self.alternatives != "similar":
            params = {k: v[None] for k, v in shared.items() if k in view.model.shared}
            score_CI = view.model.score(params, w_CD, params["items"]).index_fill(
                1, target_K, -torch.inf
            )
            top = self.top if self.alternatives == "both" else self.many
            found_CI = found_CI.scatter(
                1, score_CI.topk(min(top, len(table_ID) - len(target_K))).indices, True
            )
        if self.alternatives == "listed":
            return found_CI
        listed_CI, more = found_CI, self.many - (self.top if self.alternatives == "both" else 0)
        for target in target_K:
            alike_I = (table_ID @ table_ID[target]).index_fill(0, target_K, -torch.inf)
            free_CI = alike_I.masked_fill(listed_CI, -torch.inf)
            best = free_CI.topk(min(max(more, 0), len(table_ID))).indices
            found_CI = found_CI | torch.zeros_like(found_CI).scatter(1, best, True) & (
                free_CI > -torch.inf
            )
        return found_CI

    def _loss(self, z_CK: Tensor, goal_CK: Tensor, rival_CK: Tensor) -> Tensor:
        """[C]; without alternatives what A-ra asks for, of a fitted user."""
        alone_C = (F.softplus(-z_CK) * goal_CK).sum(1) / goal_CK.sum(1)
        many_C = rival_CK.sum(1)
        if self.goal == "bce" or not bool(many_C.any()):
            return alone_C + (F.softplus(z_CK) * rival_CK).sum(1) / many_C.clamp(min=1)
        over_CKK = torch.sigmoid(
            z_CK[:, None] - z_CK[:, :, None]
        )  # an alternative, in the last place, over a target
        return (over_CKK * (goal_CK[:, :, None] & rival_CK[:, None])).sum((1, 2))

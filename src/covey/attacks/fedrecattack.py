"""FedRecAttack (Rong et al., FedRecAttack: Model Poisoning Attack to Federated Recommendation, ICDE 2022).

The attackers' centre knows some of every user's items. It fits a vector for each user to them, and pushes
the targets just over the last item that the user would be shown. N = honest users, K = targets, B = users
at a time, R = rows of an upload.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.attack import AttackView
from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.core.messages import Upload
from covey.core.ragged import FieldDict, Fields, Ragged, Rows
from covey.core.rng import Rng

from .base import chosen, has_users
from .fitting import adam

USERS_AT_ONCE = 256


@dataclass(frozen=True)
class FedRecAttack:
    """Uploads rows of the targets and of other items, those with the largest gradients, no longer than `bound`."""

    targets: tuple[int, ...] = (0,)
    leak: float = 0.01  # xi: share of every user's training items that is known, rounded up
    rows: int = 60  # kappa: rows of an upload
    bound: float = 1.0  # C: norm of a gradient row that the server lets pass
    top: int = 10  # length of the list that the target is to enter
    noise: float = 3.2e-4  # standard deviation; a variance of 1e-7
    steps: int = 1  # of Adam for the users' vectors, each round
    fit_rate: float = 0.01
    rate: float = 0.01  # of the upload: that of the system
    name: str = "fedrecattack"
    knowledge: str = "a share of every user's items, and the norm that the server clips rows to"

    def __post_init__(self) -> None:
        positive(self.name, rows=self.rows, bound=self.bound, top=self.top)
        if not 0 < self.leak <= 1:
            raise CoveyError(
                f"{self.name}: leak = {self.leak}; it is a share, over 0 and at most 1"
            )

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        if view.step != "train":
            return {}, upload
        has_users(view, "FedRecAttack")
        assert view.known is not None
        target_K = chosen(view, self.name, self.targets)
        u_ND = self.users(view, view.known)
        g_ID = self.gradient(view, u_ND, view.known, target_K)
        items_CR = self.row_sets(view, g_ID, target_K)
        g_CRD = g_ID[items_CR]
        g_CRD = g_CRD * (self.bound / g_CRD.norm(dim=-1, keepdim=True).clamp(min=self.bound))
        g_CRD = g_CRD + self.noise * view.rng.fold("noise").normal(
            *g_CRD.shape[1:], dtype=g_CRD.dtype
        )
        offsets = torch.arange(len(g_CRD) + 1, device=g_CRD.device) * g_CRD.shape[1]
        rows = Rows(
            Ragged(items_CR.flatten(), offsets), -self.rate * g_CRD.flatten(0, 1), len(g_ID)
        )
        return {"users": u_ND}, replace(upload, update={**upload.update, "items": rows})

    def users(self, view: AttackView, known: Ragged) -> Tensor:
        """A vector of every honest user, fitted on from round to round to the items known of it, [N, D]."""
        table_ID = view.download.public.shared["items"]
        # The centre's own stream, so that all attackers of a round compute the same.
        rng = Rng.of(0, view.round, torch.arange(len(known), device=table_ID.device)).fold(
            self.name
        )
        start_ND = 0.01 * rng.home("users").normal(table_ID.shape[1], dtype=table_ID.dtype)
        other = (rng.fold("negatives").ragged_uniform(known.lengths).values * len(table_ID)).long()
        params = self._layers(view)

        def loss(x: Fields) -> Tensor:  # BPR, one negative for each item
            u_TD = x["users"][known.owner]
            wide = {k: v.expand(len(u_TD), *v.shape[1:]) for k, v in params.items()}
            z_T2 = view.model.score(wide, u_TD, table_ID[torch.stack([known.values, other], 1)])
            return F.softplus(z_T2[:, 1] - z_T2[:, 0])

        return adam({"users": view.memory.get("users", start_ND)}, loss, self.steps, self.fit_rate)[
            "users"
        ]

    def gradient(self, view: AttackView, u_ND: Tensor, known: Ragged, target_K: Tensor) -> Tensor:
        """Of the sum over users of g(opponent - target), with respect to the item table, [I, D]."""
        table_ID = view.download.public.shared["items"].detach().clone().requires_grad_()
        total_ID = torch.zeros_like(table_ID)
        for some_B in torch.arange(len(u_ND), device=u_ND.device).split(USERS_AT_ONCE):
            has = known.take(some_B)
            z_BI = view.model.score(
                {**self._layers(view), "items": table_ID[None]}, u_ND[some_B], table_ID[None]
            )
            shown_BI = z_BI.detach().index_fill(1, target_K, -torch.inf)
            shown_BI[has.owner, has.values] = -torch.inf
            best_BL = shown_BI.topk(min(self.top, shown_BI.shape[1])).indices
            # The last of the list is the first target's opponent, the one before it the second's.
            place_K = (
                best_BL.shape[1]
                - 1
                - torch.arange(len(target_K), device=u_ND.device) % best_BL.shape[1]
            )
            x_BK = z_BI.gather(1, best_BL[:, place_K]) - z_BI[:, target_K]
            free_BK = torch.ones_like(x_BK, dtype=torch.bool)
            own_T, at_T = (has.values[:, None] == target_K).nonzero().unbind(1)
            free_BK[has.owner[own_T], at_T] = False
            loss = (torch.where(x_BK >= 0, x_BK, x_BK.clamp(max=0).exp() - 1) * free_BK).sum()
            total_ID += torch.autograd.grad(loss, table_ID)[0]
        return total_ID

    def row_sets(self, view: AttackView, g_ID: Tensor, target_K: Tensor) -> Tensor:
        """The targets and rows drawn in proportion to their gradients' norms, by draws that a client keeps, [C, R]."""
        weight_I = g_ID.norm(dim=1).index_fill(0, target_K, torch.inf)
        chance_CI = -(
            -view.rng.home("rows").uniform(len(g_ID)).clamp(min=1e-300).log()
        ).log()  # Gumbel
        many = min(max(self.rows, len(target_K)), len(g_ID))
        return (weight_I.double().log() + chance_CI).topk(many).indices.sort(1).values

    def _layers(self, view: AttackView) -> Fields:
        return {
            k: v[None]
            for k, v in view.download.public.shared.items()
            if k in view.model.shared and k != "items"
        }

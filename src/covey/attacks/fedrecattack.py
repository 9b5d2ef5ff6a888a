"""FedRecAttack: promotes targets to user vectors that are fitted to leaked interactions.

Rong et al., "FedRecAttack: Model Poisoning Attack to Federated Recommendation", ICDE 2022. The
attackers' centre knows some of every user's items, fits a vector for each user to them, and pushes
the targets above the last item that the user would be shown. Shape suffixes: N = honest users,
K = targets, B = users of a block, R = rows of an upload, L = places of a list.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core import CoveyError, FieldDict, Fields, Ragged, Rng, Rows, Upload, positive

from .base import AttackView, TrainingAttack, checked_targets, equal_lists, need_user_vectors
from .crafting import adam, shared_params

USERS_AT_ONCE = 256


@dataclass(frozen=True)
class FedRecAttack(TrainingAttack):
    """Uploads the targets' rows and rows with large gradients, each clipped to `bound`."""

    targets: tuple[int, ...] = (0,)
    leak: float = 0.01  # xi: known share of every user's training items, rounded up
    rows: int = 60  # kappa: rows of an upload
    bound: float = 1.0  # C: largest norm of a gradient row that the server accepts
    top: int = 10  # length of the list that the target is to enter
    noise: float = 3.2e-4  # standard deviation; a variance of 1e-7
    steps: int = 1  # of Adam for the users' vectors, in each round
    fit_rate: float = 0.01
    rate: float = 0.01  # learning rate of the upload: that of the system
    name: str = "fedrecattack"
    knowledge: str = "a share of every user's items, and the norm that the server clips rows to"

    def __post_init__(self) -> None:
        positive(self.name, rows=self.rows, bound=self.bound, top=self.top)
        if not 0 < self.leak <= 1:
            wrong = f"{self.name}: leak = {self.leak}; it is a share, over 0 and at most 1"
            raise CoveyError(wrong)

    def craft(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        need_user_vectors(view, self.name)
        assert view.known is not None
        target_K = checked_targets(view, self.name, self.targets)
        u_ND = self.users(view, view.known)
        g_ID = self.gradient(view, u_ND, view.known, target_K)
        items_CR = self.row_sets(view, g_ID, target_K)
        g_CRD = g_ID[items_CR]
        g_CRD = g_CRD * (self.bound / g_CRD.norm(dim=-1, keepdim=True).clamp(min=self.bound))
        noise_CRD = view.rng.fold("noise").normal(*g_CRD.shape[1:], dtype=g_CRD.dtype)
        g_CRD = g_CRD + self.noise * noise_CRD
        rows = Rows(equal_lists(items_CR), -self.rate * g_CRD.flatten(0, 1), len(g_ID))
        return {"users": u_ND}, replace(upload, update={**upload.update, "items": rows})

    def users(self, view: AttackView, known: Ragged) -> Tensor:
        """A vector for each honest user, [N, D], trained further in each round on known items."""
        table_ID = view.download.public.shared["items"]
        # The centre has its own stream, so that all attackers of a round compute the same.
        ids_N = torch.arange(len(known), device=table_ID.device)
        rng = Rng.of(0, view.round, ids_N).fold(self.name)
        start_ND = 0.01 * rng.home("users").normal(table_ID.shape[1], dtype=table_ID.dtype)
        other = (rng.fold("negatives").ragged_uniform(known.lengths).values * len(table_ID)).long()
        params = shared_params(view)

        def loss(x: Fields) -> Tensor:  # BPR with one negative for each item
            u_TD = x["users"][known.owner]
            wide = {k: v.expand(len(u_TD), *v.shape[1:]) for k, v in params.items()}
            z_T2 = view.model.score(wide, u_TD, table_ID[torch.stack([known.values, other], 1)])
            return F.softplus(z_T2[:, 1] - z_T2[:, 0])

        start = {"users": view.memory.get("users", start_ND)}
        return adam(start, loss, self.steps, self.fit_rate)["users"]

    def gradient(self, view: AttackView, u_ND: Tensor, known: Ragged, target_K: Tensor) -> Tensor:
        """The gradient of the attack's loss with respect to the item table, [I, D].

        The loss is the sum over users and targets of g(opponent - target), where an opponent is one
        of the last items of the user's list. Users who are known to have a target do not count.
        """
        table_ID = view.download.public.shared["items"].detach().clone().requires_grad_()
        params, total_ID = shared_params(view), torch.zeros_like(table_ID)
        params["items"] = table_ID[None]
        for some_B in torch.arange(len(u_ND), device=u_ND.device).split(USERS_AT_ONCE):
            has = known.take(some_B)
            z_BI = view.model.score(params, u_ND[some_B], params["items"])
            shown_BI = z_BI.detach().index_fill(1, target_K, -torch.inf)
            shown_BI[has.owner, has.values] = -torch.inf
            best_BL = shown_BI.topk(min(self.top, shown_BI.shape[1])).indices
            # The last of the list is the first target's opponent, the one before it the second's.
            L, order_K = best_BL.shape[1], torch.arange(len(target_K), device=u_ND.device)
            x_BK = z_BI.gather(1, best_BL[:, L - 1 - order_K % L]) - z_BI[:, target_K]
            free_BK = torch.ones_like(x_BK, dtype=torch.bool)
            own_T, at_T = (has.values[:, None] == target_K).nonzero().unbind(1)
            free_BK[has.owner[own_T], at_T] = False
            loss = (torch.where(x_BK >= 0, x_BK, x_BK.clamp(max=0).exp() - 1) * free_BK).sum()
            total_ID += torch.autograd.grad(loss, table_ID)[0]
        return total_ID

    def row_sets(self, view: AttackView, g_ID: Tensor, target_K: Tensor) -> Tensor:
        """Items of an upload, [C, R]: targets, and others by gradient, the same in all rounds."""
        weight_I = g_ID.norm(dim=1).index_fill(0, target_K, torch.inf)
        u_CI = view.rng.home("rows").uniform(len(g_ID)).clamp(min=1e-300)
        gumbel_CI = -(-u_CI.log()).log()
        many = min(max(self.rows, len(target_K)), len(g_ID))
        return (weight_I.double().log() + gumbel_CI).topk(many).indices.sort(1).values

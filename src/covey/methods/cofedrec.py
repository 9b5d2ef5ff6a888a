"""CoFedRec (He et al., Co-clustering for Federated Recommender System, WWW 2024).

Clients keep personal item tables and upload them. The server sorts the items into categories, draws
a core client and one category, and averages the tables of the clients that see this category as the
core client does; the others keep their own. Clients pull the items of a category together.

Further shape suffixes: P = participants, K = item categories, B = items of a tile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor

from ..core import CoveyError, Drawer, Fields, Sent, Total, Upload, positive
from ..mechanism import ClientView, Group, Grouping, Mechanism, Sees, ServerView
from ..rng import Rng

TILE = 128  # items whose similarities to all items are held at once
TINY = 1e-6  # as in the published code
CLIENTS_AT_ONCE = 256  # whose category rows are gathered together


@dataclass(frozen=True)
class CoClusters(Grouping):
    """Everybody's mean table is published; the core client's group gets its own mean delivered."""

    categories: int = 30  # K
    name: str = "co-clusters"
    sees: Sees = "each"

    def __post_init__(self) -> None:
        positive(self.name, categories=self.categories)

    def send(self, view: ServerView) -> Sent:
        return Sent(dict(view.memory))  # the item membership M; none before the first aggregation

    def groups(self, view: ServerView, upload: Upload | Total) -> tuple[Drawer, Sequence[Group]]:
        if "items" not in view.model.uploaded or isinstance(upload, Total):
            raise CoveyError("co-clustering compares the clients' own item tables: use a model with keep_items = true")
        table_PID = upload.model["items"]
        category_I = self._membership(table_PID.mean(0), view.dice.fold("k-means"))
        core = _draw(view.dice.fold("core client"), len(upload))
        chosen = _draw(view.dice.fold("category"), int(category_I.max()) + 1)
        s_P = similarity(table_PID, core, (category_I == chosen).nonzero()[:, 0])
        similar = nearest(s_P)
        return {"category": category_I}, [Group(("items",), similar, public=False), Group(tuple(view.public))]

    def _membership(self, mean_ID: Tensor, dice: Rng) -> Tensor:
        """Eq. 6 and 7: categories of the items of the mean table, [I]."""
        seed = _draw(dice, 2**31)
        means = KMeans(min(self.categories, len(mean_ID)), n_init=1, random_state=seed)
        return torch.from_numpy(means.fit_predict(mean_ID.double().cpu().numpy())).to(mean_ID.device, torch.int64)


def similarity(table_PID: Tensor, core: int, rows: Tensor) -> Tensor:
    """Eq. 1: how alike the core client and each participant see some items, [P]."""
    core_ID = table_PID[core, rows]
    parts = table_PID.split(CLIENTS_AT_ONCE)
    return torch.cat([F.cosine_similarity(part[:, rows], core_ID, dim=-1).sum(1) for part in parts])


def nearest(s_P: Tensor) -> Tensor:
    """Eq. 2 to 4: the clients from the most similar one down to the elbow of the sorted similarities.

    The distance to the line through the first and the last point is the vertical gap times a constant.
    """
    s_P, order_P = s_P.sort(descending=True, stable=True)
    share_P = torch.arange(len(s_P), device=s_P.device).to(s_P) / max(len(s_P) - 1, 1)
    elbow = int((s_P - s_P[0] - share_P * (s_P[-1] - s_P[0])).abs().argmax())
    return order_P[: elbow + 1].sort().values


def _draw(dice: Rng, high: int) -> int:
    return int(dice.integers(high, 1))


@dataclass(frozen=True)
class ItemContrast(Mechanism):
    """Supervised contrastive learning of a client's whole item table, the server's categories as labels.

    As in the published code: the mean over positives of the logarithms, unit vectors, and a factor tau / tau_0.
    """

    weight: float = 0.005  # lambda
    tau: float = 0.1
    tau0: float = 0.5
    name: str = "item contrast"
    listens: str = "co-clusters"
    whole_table: bool = True

    def __post_init__(self) -> None:
        positive(self.name, tau=self.tau, tau0=self.tau0)

    def prepare(self, view: ClientView) -> Fields:
        category_I = view.sent.shared.get("category")
        return {} if category_I is None else {"member": F.one_hot(category_I).T}  # [K, I]

    def loss(self, view: ClientView) -> Tensor | None:
        table_CID, member_KI = view.params["items"], view.prepared.get("member")
        if member_KI is None or not self.weight or not table_CID.requires_grad:  # it moves nothing but items
            return None
        contrast_C: Tensor = SupCon.apply(table_CID, member_KI, self.tau, self.tau0)
        return self.weight * contrast_C  # Eq. 9

    def floats(self, n_rows: int) -> int:
        return min(TILE, n_rows) * n_rows if self.weight else 0


class SupCon(torch.autograd.Function):
    """Eq. 8 in its published form, [C], with the gradient in closed form: one exponential per pair of items.

    With F the unit rows, n_i the other items of i's category and S_i the sum of its unit rows:
    q_i = [F_i (S_i - F_i) / tau - n_i / tau - n_i log D_i] / n_i, where D_i sums exp((F_i F_j - 1) / tau)
    over j != i; the loss is -tau / tau_0 times the mean of q. No [I, I] array is held.
    """

    @staticmethod
    def forward(ctx: Any, table_CID: Tensor, member_KI: Tensor, tau: float, tau0: float) -> Tensor:
        norm_CI1 = table_CID.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        unit_CID = table_CID / norm_CI1
        member_KI = member_KI.to(unit_CID)
        n_I = member_KI.sum(1) @ member_KI - 1
        w_I = 1 / (n_I + TINY)
        member_CKI = member_KI.expand(len(table_CID), -1, -1)  # one product per client, so with the same bits
        others_CID = member_CKI.mT @ (member_CKI @ unit_CID) - unit_CID
        push_CID, log_CI = _repulsion(unit_CID, n_I * w_I, tau)
        pull_CI = (unit_CID * others_CID).sum(-1)
        q_CI = w_I * ((pull_CI - n_I) / tau - n_I * log_CI)
        slope_CID = (push_CID - 2 * w_I[:, None] * others_CID) / (tau0 * len(n_I))  # of the loss by F
        along_CI1 = (unit_CID * slope_CID).sum(-1, keepdim=True)
        ctx.save_for_backward((slope_CID - along_CI1 * unit_CID) / norm_CI1)
        return -tau / tau0 * q_CI.mean(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return grads[0][:, None, None] * ctx.saved_tensors[0], None, None, None


def _repulsion(unit_CID: Tensor, share_I: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """For G_ij = exp((F_i F_j - 1) / tau), G_ii = 0, D = G 1 and r = share / D: r G F + G (r F), and log D."""
    push_CID, logs = torch.zeros_like(unit_CID), []
    shift_111 = unit_CID.new_full((1, 1, 1), -1 / tau)
    for first in range(0, unit_CID.shape[1], TILE):
        rows = slice(first, first + TILE)
        tile_CBD = unit_CID[:, rows]
        g_CBI = torch.baddbmm(shift_111, tile_CBD, unit_CID.mT, alpha=1 / tau).exp_()
        g_CBI.diagonal(offset=first, dim1=1, dim2=2).zero_()
        d_CB = g_CBI.sum(-1).add_(TINY)
        r_CB1 = (share_I[rows] / d_CB)[..., None]
        push_CID[:, rows] += r_CB1 * (g_CBI @ unit_CID)
        push_CID.baddbmm_(g_CBI.mT, r_CB1 * tile_CBD)  # G is symmetric: its rows are its columns
        logs.append(d_CB.log_())
    return push_CID, torch.cat(logs, 1)

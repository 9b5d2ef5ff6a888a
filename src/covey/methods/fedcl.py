"""FedCL: federated contrastive learning with semi-hard negatives (Wu et al., 2022, arXiv 2204.09850).

Clients report a noisy user vector when a pass opens; the server clusters the latest report of
every client and sends each client of a round items that its cluster scores high. The paper's
other negatives and Eq. 1 are `NextItemSoftmax(in_batch=True)`, its update `Local("sgd", lr=1.0,
epochs=1)`, combined by `Sum` and stepped by the server's `Adam`.
Shape suffixes: K = clusters, H = items of a pool, T = items sent to a client.
"""

import math
from dataclasses import dataclass

import torch
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor

from ..core import CoveyError, Drawer, Fields, Ragged, Sent, Total, Upload, offsets_of, positive
from ..examples import Examples
from ..ledger import Disclosure
from ..mechanism import ClientView, Mechanism, ServerView, no_clients
from ..sampling import distinct_ranks


@dataclass(frozen=True)
class HardNegatives(Mechanism):
    clip: float = 1.0  # delta, L1
    epsilon: float = 4.0  # of one report
    clusters: int = 25  # C
    difficulty: float = 0.25  # R: share of the catalogue that is hard for a cluster
    count: int = 20  # T
    name: str = "fedcl"
    asks: frozenset[str] = frozenset({"report"})

    def __post_init__(self) -> None:
        positive(self.name, clip=self.clip, epsilon=self.epsilon, clusters=self.clusters)
        if not 0 <= self.difficulty <= 1 or self.count < 0:
            raise CoveyError(f"{self.name}: difficulty is a share of the items, 0 to 1, and count at least 0")

    def report(self, view: ClientView) -> Drawer:
        u_CD = clipped(view.user(), self.clip)
        noise_CD = view.rng.laplace(2 * self.clip / self.epsilon, u_CD.shape[1], dtype=u_CD.dtype)
        return {"user": u_CD + noise_CD}  # Algorithm 1, line 7

    def augment(self, view: ClientView, examples: Examples) -> Examples:
        """Those items that the client does not have are negatives of all its positions."""
        if "items" not in view.sent.each:
            return examples
        items_CT = view.sent.each["items"]
        client_C1 = torch.arange(len(items_CT), device=items_CT.device)[:, None] * view.catalogue.n_items
        own = view.data.items
        fresh_CT = ~torch.isin(items_CT + client_C1, own.values + client_C1[:, 0].repeat_interleave(own.lengths))
        hard = Ragged(items_CT[fresh_CT], offsets_of(fresh_CT.sum(1)))
        return examples.append(hard, torch.zeros(len(hard.values), device=items_CT.device))

    def reporters(self, view: ServerView, everyone: Tensor) -> Tensor:
        return everyone if view.round.opens_epoch else no_clients().to(everyone.device)

    def hear(self, view: ServerView, reports: Upload | Total) -> tuple[Drawer, Fields]:
        """The latest report of every client, clustered anew."""
        assert isinstance(reports, Upload)
        said_CD, ids_C = reports.extra[self.name]["user"], reports.ids_C
        height = max(int(ids_C.max()) + 1, len(view.memory.get("known", ())))
        report_ND, known_N = said_CD.new_zeros(height, said_CD.shape[1]), ids_C.new_zeros(height, dtype=torch.bool)
        if view.memory:
            before = len(view.memory["known"])
            report_ND[:before], known_N[:before] = view.memory["report"], view.memory["known"]
        report_ND[ids_C], known_N[ids_C] = said_CD, True
        cluster_C = ward(report_ND[known_N], self.clusters)
        member_N = torch.zeros_like(known_N, dtype=torch.long)  # 0 is everybody, for who never reported
        member_N[known_N] = 1 + cluster_C
        centre_KD = centres(report_ND[known_N], cluster_C)
        return {"report": report_ND, "known": known_N, "member": member_N, "centre": centre_KD}, {}

    def send(self, view: ServerView) -> Sent:
        """Lines 11 to 14: T items of the cluster's best R %, drawn for each client on its own."""
        if view.step != "train" or not view.memory:
            return Sent()
        member_N, ids_C = view.memory["member"], view.round.ids_C
        member_C = torch.where(ids_C < len(member_N), member_N[ids_C.clamp(max=len(member_N) - 1)], 0)
        score_KI = view.memory["centre"] @ view.public["items"].mT
        size = math.ceil(self.difficulty * score_KI.shape[1])
        pool_KH = score_KI.topk(size, dim=1).indices
        unit_CT = view.rng.fold("hard").uniform(min(self.count, size))
        rank_CT = distinct_ranks(unit_CT, torch.full_like(ids_C, size))
        return Sent(each={"items": pool_KH[member_C[:, None], rank_CT]})

    def discloses(self) -> tuple[Disclosure, ...]:
        what = f"the user vector, clipped to L1 norm {self.clip:g}, with Laplace noise"
        return (Disclosure("report", f"{self.name}/user", what, self.epsilon),)


def clipped(u_CD: Tensor, most: float) -> Tensor:
    """Scaled down to an L1 norm of at most `most`."""
    return u_CD * (most / u_CD.abs().sum(1, keepdim=True).clamp(min=most))


def ward(x_ND: Tensor, clusters: int) -> Tensor:
    """Cluster of each row by Ward's minimum variance; memory grows with the square of the rows."""
    if len(x_ND) < 2:
        return torch.zeros(len(x_ND), dtype=torch.long, device=x_ND.device)
    tree = linkage(x_ND.double().cpu().numpy(), "ward")
    return torch.from_numpy(fcluster(tree, clusters, "maxclust") - 1).long().to(x_ND.device)


def centres(x_ND: Tensor, cluster_N: Tensor) -> Tensor:
    """The mean of all rows, then those of the clusters, [1 + K, D]."""
    count_K = torch.bincount(cluster_N)
    sum_KD = x_ND.new_zeros(len(count_K), x_ND.shape[1]).index_add_(0, cluster_N, x_ND)
    return torch.cat([x_ND.mean(0, keepdim=True), sum_KD / count_K[:, None]])

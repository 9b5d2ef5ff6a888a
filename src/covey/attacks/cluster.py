"""ClusterAttack: makes item vectors alike, so that the model cannot tell items apart.

Yu et al., "Untargeted Attack against Federated Recommendation Systems and the Defense", AAAI 2023.
Item rows are pulled to the centres of a few clusters, and are as long as honest rows.
Shape suffix: G = clusters.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.core import CoveyError, FieldDict, Rng, Rows, Upload, positive

from .base import AttackView, equal_lists
from .profiles import RandomList

DECAY, MOST = 0.999, 50  # of the moving average of the loss; largest number of clusters
LLOYD = 20  # steps of k-means


@dataclass(frozen=True)
class ClusterAttack(RandomList):
    """Uploads a row for every item, of norm mu + 3 sigma u with u uniform in [0, 1).

    mu and sigma are the mean and the standard deviation of the attacker's honest rows.
    """

    clusters: int = 2  # at the start
    # The difference of rounds with a rising and a falling loss at which the number changes.
    patience: int = 100
    items: int = 30  # length of the random list, whose honest update gives the norms
    scale: float = 1.0  # multiplies the rows
    name: str = "clusterattack"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self.name, clusters=self.clusters, patience=self.patience)
        if self.clusters > MOST:
            raise CoveyError(f"{self.name}: clusters = {self.clusters}; at most {MOST}")

    def craft(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        honest, table_ID = upload.update.get("items"), view.download.public.shared.get("items")
        if not isinstance(honest, Rows) or table_ID is None:
            wrong = f"{self.name} needs a shared item table, which this model does not have"
            raise CoveyError(f"{wrong}; use MF or NCF")
        I = len(table_ID)
        groups = min(int(view.memory.get("clusters", self.clusters)), I)
        rng = Rng.server(0, view.round, self.name).to(table_ID.device)
        centre_GD, of_I = kmeans(table_ID, groups, rng)
        away_ID = table_ID - centre_GD[of_I]
        loss = float(away_ID.square().sum() / groups)
        g_ID = -2 / groups * away_ID  # the step that lowers the loss
        mean_C1, deviation_C1 = self._norms(honest, I)
        size_CI = mean_C1 + 3 * deviation_C1 * view.rng.fold("size").uniform(I)
        unit_ID = g_ID / g_ID.norm(dim=1, keepdim=True).clamp(min=1e-12)
        values_CID = self.scale * size_CI.to(g_ID)[..., None] * unit_ID
        every = equal_lists(torch.arange(I, device=of_I.device).expand(len(view.ids_C), -1))
        rows = Rows(every, values_CID.flatten(0, 1), I)
        sent = replace(upload, update={**upload.update, "items": rows})
        return self.adapted(view.memory, loss, groups), sent

    def _norms(self, rows: Rows, n_items: int) -> tuple[Tensor, Tensor]:
        """Mean and deviation of a client's row norms, [C, 1]; rows that it does not send are 0."""
        norm_T1 = rows.values.flatten(1).norm(dim=1).double()[:, None]
        mean_C1, square_C1 = (
            x_T1.new_zeros(len(rows), 1).index_add_(0, rows.items.owner, x_T1) / n_items
            for x_T1 in (norm_T1, norm_T1.square())
        )
        return mean_C1, (square_C1 - mean_C1.square()).clamp(min=0).sqrt()

    def adapted(self, memory: FieldDict, loss: float, groups: int) -> FieldDict:
        """More clusters while the loss keeps rising, fewer while it keeps falling."""
        last = {k: float(memory.get(k, 0.0)) for k in ("t", "mean", "trend", "smooth")}
        t, mean = last["t"] + 1, DECAY * last["mean"] + (1 - DECAY) * loss
        now = mean / (1 - DECAY**t)
        trend = last["trend"] + (0 if t == 1 else 1 if now > last["smooth"] else -1)
        if trend >= self.patience:
            groups, trend = min(round(groups + (MOST - groups) ** 0.5), MOST), 0.0
        elif trend <= -self.patience:
            groups, trend = max(round(groups - (groups - 1) ** 0.5), 1), 0.0
        numbers = {"t": t, "mean": mean, "smooth": now, "trend": trend}
        memory = {k: torch.tensor(v, dtype=torch.float64) for k, v in numbers.items()}
        return {**memory, "clusters": torch.tensor(groups)}


def kmeans(x_ID: Tensor, groups: int, rng: Rng) -> tuple[Tensor, Tensor]:
    """Centres, [G, D], and each row's, [I], by Lloyd's algorithm; empty clusters do not move."""
    centre_GD = x_ID[rng.permutation(len(x_ID))[0, :groups]]
    of_I = torch.cdist(x_ID, centre_GD).argmin(1)
    for _ in range(LLOYD):
        count_G1 = torch.bincount(of_I, minlength=groups)[:, None].to(x_ID)
        sum_GD = torch.zeros_like(centre_GD).index_add_(0, of_I, x_ID)
        centre_GD = torch.where(count_G1 > 0, sum_GD / count_G1.clamp(min=1), centre_GD)
        of_I = torch.cdist(x_ID, centre_GD).argmin(1)
    return centre_GD, of_I

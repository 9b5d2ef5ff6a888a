"""ClusterAttack (Yu et al., Untargeted Attack against Federated Recommendation Systems, AAAI 2023).

Untargeted: item rows are pulled to the centres of a few clusters, so that the model cannot tell items
apart. Rows are as long as honest ones. G = clusters.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.contract.attack import AttackView
from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.core.messages import Upload
from covey.core.ragged import FieldDict, Ragged, Rows
from covey.core.rng import Rng

from .profiles import RandomList

DECAY, MOST = 0.999, 50  # of the loss' moving average; clusters
LLOYD = 20  # steps of k-means


@dataclass(frozen=True)
class ClusterAttack(RandomList):
    """Uploads a row for every item, of norm mu + 3 sigma times a random number: of the attacker's honest rows."""

    clusters: int = 2  # at the start
    patience: int = 100  # rounds up less rounds down, or the reverse, at which their number changes
    items: int = 30  # of the random list whose honest update tells how long rows are
    scale: float = 1.0  # multiplies the rows
    name: str = "clusterattack"
    knowledge: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self.name, clusters=self.clusters, patience=self.patience)
        if self.clusters > MOST:
            raise CoveyError(f"{self.name}: clusters = {self.clusters}; at most {MOST}")

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        if view.step != "train":
            return {}, upload
        honest, table_ID = upload.update.get("items"), view.download.public.shared.get("items")
        if not isinstance(honest, Rows) or table_ID is None:
            raise CoveyError(
                "ClusterAttack moves a shared item table, which this model has not; use MF or NCF"
            )
        many, I = len(view.ids_C), len(table_ID)
        groups = min(int(view.memory.get("clusters", torch.tensor(self.clusters))), I)
        centre_GD, of_I = kmeans(
            table_ID, groups, Rng.server(0, view.round, self.name).to(table_ID.device)
        )
        away_ID = table_ID - centre_GD[of_I]
        loss = float(away_ID.square().sum() / groups)
        g_ID = -2 / groups * away_ID  # the step that makes the loss smaller
        size_CI = self._sizes(honest, I) + 3 * self._sizes(honest, I, spread=True) * view.rng.fold(
            "size"
        ).uniform(I)
        unit_ID = g_ID / g_ID.norm(dim=1, keepdim=True).clamp(min=1e-12)
        values_CID = self.scale * size_CI.to(g_ID)[..., None] * unit_ID
        every = Ragged(
            torch.arange(I, device=of_I.device).repeat(many),
            torch.arange(many + 1, device=of_I.device) * I,
        )
        rows = Rows(every, values_CID.flatten(0, 1), I)
        return self.adapted(view.memory, loss, groups), replace(
            upload, update={**upload.update, "items": rows}
        )

    def _sizes(self, rows: Rows, n_items: int, spread: bool = False) -> Tensor:
        """Mean, or standard deviation, of a client's row norms over all items, untouched ones 0, [C, 1]."""
        norm_T = rows.values.flatten(1).norm(dim=1).double()

        def total(x_T: Tensor) -> Tensor:
            return (
                x_T.new_zeros(len(rows), 1).index_add_(0, rows.items.owner, x_T[:, None]) / n_items
            )

        mean_C1 = total(norm_T)
        return (
            (total(norm_T.square()) - mean_C1.square()).clamp(min=0).sqrt() if spread else mean_C1
        )

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
        said = {"t": t, "mean": mean, "smooth": now, "trend": trend}
        counts = {k: torch.tensor(v, dtype=torch.float64) for k, v in said.items()}
        return {**counts, "clusters": torch.tensor(groups)}


def kmeans(x_ID: Tensor, groups: int, rng: Rng) -> tuple[Tensor, Tensor]:
    """Centres [G, D] and the cluster of each row [I], from random rows by Lloyd's steps; an empty one stays."""
    centre_GD = x_ID[rng.permutation(len(x_ID))[0, :groups]]
    of_I = torch.cdist(x_ID, centre_GD).argmin(1)
    for _ in range(LLOYD):
        count_G1 = torch.bincount(of_I, minlength=groups)[:, None].to(x_ID)
        sum_GD = torch.zeros_like(centre_GD).index_add_(0, of_I, x_ID)
        centre_GD = torch.where(count_G1 > 0, sum_GD / count_G1.clamp(min=1), centre_GD)
        of_I = torch.cdist(x_ID, centre_GD).argmin(1)
    return centre_GD, of_I

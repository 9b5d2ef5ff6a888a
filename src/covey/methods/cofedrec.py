"""CoFedRec (He et al., Co-clustering for Federated Recommender System, WWW 2024).

Clients keep personal item tables and upload them. The server sorts the items into categories, draws
a core client and one category, and averages the tables of the clients that see this category as the
core client does; the others keep their own. Clients pull the items of a category together. Shape
suffixes: P = participants, K = item categories, S = items of a sample.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from covey.core import Answers, CoveyError, FieldDict, Fields, Rng, Sent, Total, positive
from covey.mechanism import ClientView, Group, Grouping, Mechanism, Reads, ServerView

from .cofedrec_figures import explained, gaps, joined_metrics, joined_rounds, sharpness
from .supcon import HELD, TILE, KnownGradient, ValueGrad, members, printed, published
from .weighted import WholeTableLoss

CLIENTS_AT_ONCE = 256  # whose rows of a category are gathered together, or tables compared


@dataclass(frozen=True)
class CoClusters(Grouping):
    """The core client's group gets its average table; the average over all clients is published.

    All else that clients share is averaged over all of them.
    """

    categories: int = 30  # K
    name: str = "co-clusters"
    reads_uploads: Reads = "each"

    def __post_init__(self) -> None:
        positive(self.name, categories=self.categories)

    def send(self, view: ServerView) -> Sent:
        """Sends the item membership M; there is none before the first aggregation."""
        return Sent({k: v for k, v in view.state.items() if k == "category"})

    def groups(self, view: ServerView, upload: Answers) -> tuple[FieldDict, Sequence[Group]]:
        if "items" not in view.model.uploaded or isinstance(upload, Total):
            wrong = "co-clustering compares the clients' own item tables"
            raise CoveyError(f"{wrong}: use a model with keep_items = true")
        table_PID, rng = upload.model["items"], view.server_rng
        mean_ID = table_PID.mean(0)  # Eq. 6
        category_I = membership(mean_ID, self.categories, rng.fold("k-means"))
        core = _draw_index(rng.fold("core client"), len(upload))
        chosen = _draw_index(rng.fold("category"), int(category_I.max()) + 1)
        rows = (category_I == chosen).nonzero()[:, 0]
        s_P = similarity(table_PID, core, rows)
        group = nearest(s_P)
        joined_N = joined_rounds(view.state.get("joined"), upload.ids_C, upload.ids_C[group])
        sizes = {"group": len(group), "participants": len(upload), "category": len(rows)}
        metrics = {
            **{name: torch.tensor(size) for name, size in sizes.items()},
            **joined_metrics(joined_N, view.round.number),
            "elbow": sharpness(s_P),
            "explained": explained(mean_ID, category_I),
        }
        state: FieldDict = {"category": category_I, "joined": joined_N}
        state |= {f"tell/{name}": value for name, value in metrics.items()}
        return state, [Group(("items",), group, public=False), Group(tuple(view.public))]


@dataclass(frozen=True)
class ItemCategories(Mechanism):
    """The item membership alone, if all clients share one table: Table 2's Item_S and Item_SC."""

    categories: int = 30  # K
    name: str = "item categories"

    def __post_init__(self) -> None:
        positive(self.name, categories=self.categories)

    def send(self, view: ServerView) -> Sent:
        return Sent(dict(view.state))

    def end_round(self, view: ServerView) -> FieldDict:
        rng = view.server_rng.fold("k-means")
        return {"category": membership(view.public["items"], self.categories, rng)}


@dataclass(frozen=True)
class TableClusters(Grouping):
    """Clusters clients by k-means on whole item tables, which the paper says fails (Figure 5)."""

    clusters: int = 2
    name: str = "table clusters"
    reads_uploads: Reads = "each"

    def __post_init__(self) -> None:
        positive(self.name, clusters=self.clusters)

    def groups(self, view: ServerView, upload: Answers) -> tuple[FieldDict, Sequence[Group]]:
        if "items" not in view.model.uploaded or isinstance(upload, Total):
            wrong = "K-means of clients needs their own item tables"
            raise CoveyError(f"{wrong}: use a model with keep_items = true")
        x_PP = coordinates(upload.model["items"].flatten(1))
        cluster_P = membership(x_PP, self.clusters, view.server_rng.fold("k-means"))
        size_K = cluster_P.bincount()
        state = {"tell/largest": size_K.max() / len(upload), "tell/alone": (size_K == 1).sum()}
        rows = [(cluster_P == k).nonzero()[:, 0] for k in range(len(size_K))]
        groups = [Group(("items",), row, public=False) for row in rows]
        return state, [*groups, Group(tuple(view.public))]


def coordinates(x_PX: Tensor) -> Tensor:
    """Few long points as points of few dimensions with the same distances, [P, P], for K-means."""
    x_PX = x_PX - x_PX.mean(0)
    square_P, axis_PP = torch.linalg.eigh((x_PX @ x_PX.mT).double())
    return axis_PP * square_P.clamp(min=0).sqrt()


def membership(x_ID: Tensor, categories: int, rng: Rng) -> Tensor:
    """Eq. 7: the category of each row, [I]; at most `categories`, since none is empty."""
    means = KMeans(min(categories, len(x_ID)), n_init=1, random_state=_draw_index(rng, 2**31))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than categories
        found = torch.from_numpy(means.fit_predict(x_ID.double().cpu().numpy())).long()
    return found.unique(return_inverse=True)[1].to(x_ID.device)


def similarity(table_PID: Tensor, core: int, rows: Tensor) -> Tensor:
    """Eq. 1: how similarly the core client and each participant see some items, [P]."""
    core_ID = table_PID[core, rows]
    parts = table_PID.split(CLIENTS_AT_ONCE)
    return torch.cat([F.cosine_similarity(part[:, rows], core_ID, dim=-1).sum(1) for part in parts])


def nearest(s_P: Tensor) -> Tensor:
    """Eq. 2 to 4: the clients from the most similar one to the elbow of the sorted similarities.

    The distance to the line through the first and the last point is the gap times a constant.
    """
    s_P, order_P = s_P.sort(descending=True, stable=True)
    return order_P[: int(gaps(s_P).argmax()) + 1].sort().values


def _draw_index(rng: Rng, high: int) -> int:
    return int(rng.integers(high, 1))


@dataclass(frozen=True)
class ItemContrast(WholeTableLoss):
    """Supervised contrastive learning of a client's item table, with the categories as labels.

    `reading` is Eq. 8 as the published code has it or as it is printed. `sample` is the number of
    items, drawn in each step, from which the denominator is estimated; 0 takes all items.
    """

    weight: float = 0.005  # lambda
    tau: float = 0.1
    tau0: float = 0.5
    reading: Literal["published", "printed"] = "published"
    sample: int = 0
    name: str = "item contrast"
    listens: str = "co-clusters"

    def __post_init__(self) -> None:
        positive(self.name, tau=self.tau, tau0=self.tau0)
        super().__post_init__()
        if self.sample < 0:
            raise CoveyError(f"{self.name}: sample = {self.sample}; it may not be negative")
        if self.sample and self.reading == "printed":
            wrong = f"{self.name}: only the published reading has a sampled form; set sample = 0"
            raise CoveyError(wrong)

    def precompute(self, view: ClientView) -> Sent:
        """The gradient at the table from which most clients start, which their first step uses."""
        category_I, table_CID = view.received.shared.get("category"), view.params["items"]
        if category_I is None or self.sample:
            return Sent()
        same_C = _with_commonest_table(table_CID, len(view.rng.key_C))
        if same_C is None:
            return Sent()
        first = int(same_C.long().argmax()) if len(table_CID) > 1 else 0
        two_2ID = table_CID[first].expand(2, -1, -1)  # products of one client round differently
        value_C, grad_CID = self._value_grad(two_2ID, members(category_I), view.rng)
        return Sent({"value": value_C[:1], "grad": grad_CID[:1]}, {"same": same_C})

    def prepare(self, view: ClientView) -> Fields:
        category_I = view.received.shared.get("category")
        return {} if category_I is None else {"member": members(category_I)}

    def loss(self, view: ClientView) -> Tensor | None:
        table_CID, member_KI = view.params["items"], view.prepared.get("member")
        if member_KI is None or not table_CID.requires_grad:  # it moves nothing but items
            return None
        same_C = view.received.each.get("same") if view.step == 0 else None
        if same_C is None:
            value_C, grad_CID = self._value_grad(table_CID.detach(), member_KI, view.rng)
        else:  # computed only for clients that do not start from the commonest table
            value_C = view.received.shared["value"].expand(len(table_CID)).clone()
            grad_CID = view.received.shared["grad"].expand_as(table_CID).clone()
            rest = (~same_C).nonzero()[:, 0]
            if len(rest):
                rest = torch.cat([rest, rest[:1]]) if len(rest) == 1 else rest
                some_CID, rng = table_CID.detach()[rest], view.rng.take(rest)
                value_C[rest], grad_CID[rest] = self._value_grad(some_CID, member_KI, rng)
        contrast_C: Tensor = KnownGradient.apply(table_CID, value_C, grad_CID)
        return self.weight * contrast_C  # Eq. 9

    def _value_grad(self, table_CID: Tensor, member_KI: Tensor, rng: Rng) -> ValueGrad:
        if self.reading == "printed":
            return printed(table_CID, member_KI, self.tau)
        drawn_CS = rng.integers(table_CID.shape[1], self.sample) if self.sample else None
        return published(table_CID, member_KI, self.tau, self.tau0, drawn_CS)

    def extra_floats(self, n_rows: int) -> int:
        if not self.weight:
            return 0
        if self.sample:
            return self.sample * n_rows
        holds_half = n_rows <= HELD and self.reading == "published"
        return n_rows * n_rows // 2 if holds_half else 4 * TILE * n_rows

    def compared_pairs(self, n_rows: int) -> int:
        return n_rows * (self.sample or n_rows) if self.weight else 0


def _with_commonest_table(table_CID: Tensor, many: int) -> Tensor | None:
    """The clients that start from the commonest table, [C], bool; None if all tables differ."""
    if len(table_CID) == 1:
        return torch.ones(many, dtype=torch.bool, device=table_CID.device)
    parts = table_CID.split(CLIENTS_AT_ONCE)
    sum_C = torch.cat([p.double().sum((1, 2)) for p in parts])
    _, kind_C, count = sum_C.unique(return_inverse=True, return_counts=True)
    if int(count.max()) < 2:
        return None
    like_C = kind_C == count.argmax()
    one_ID = table_CID[int(like_C.long().argmax())]
    return torch.cat([(p == one_ID).flatten(1).all(1) for p in parts])

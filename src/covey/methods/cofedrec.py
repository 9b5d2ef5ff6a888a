"""CoFedRec (He et al., Co-clustering for Federated Recommender System, WWW 2024).

Clients keep personal item tables and upload them. The server sorts the items into categories, draws
a core client and one category, and averages the tables of the clients that see this category as the
core client does; the others keep their own. Clients pull the items of a category together.

Further shape suffixes: P = participants, K = item categories, S = items of a sample.
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

from covey.contract.aggregation import Group, Grouping
from covey.contract.mechanism import Mechanism
from covey.contract.views import ClientView, Reads, ServerView
from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.core.messages import Sent, Total, Upload
from covey.core.ragged import FieldDict, Fields
from covey.core.rng import Rng

from .supcon import HELD, TILE, Known, Slope, members, printed, published
from .weighted import WholeTableLoss

CLIENTS_AT_ONCE = 256  # whose category rows are gathered together, or whose tables are compared


@dataclass(frozen=True)
class CoClusters(Grouping):
    """Everybody's mean table is published; the core client's group gets its own mean delivered.

    All else that clients share is averaged over everybody.
    """

    categories: int = 30  # K
    name: str = "co-clusters"
    reads_uploads: Reads = "each"

    def __post_init__(self) -> None:
        positive(self.name, categories=self.categories)

    def send(self, view: ServerView) -> Sent:
        """The item membership M; there is none before the first aggregation."""
        return Sent({k: v for k, v in view.state.items() if k == "category"})

    def groups(self, view: ServerView, upload: Upload | Total) -> tuple[FieldDict, Sequence[Group]]:
        if "items" not in view.model.uploaded or isinstance(upload, Total):
            raise CoveyError(
                "co-clustering compares the clients' own item tables: use a model with keep_items = true"
            )
        table_PID = upload.model["items"]
        mean_ID = table_PID.mean(0)  # Eq. 6
        category_I = membership(mean_ID, self.categories, view.server_rng.fold("k-means"))
        core = _draw(view.server_rng.fold("core client"), len(upload))
        chosen = _draw(view.server_rng.fold("category"), int(category_I.max()) + 1)
        rows = (category_I == chosen).nonzero()[:, 0]
        s_P = similarity(table_PID, core, rows)
        similar = nearest(s_P)
        joined_N = _counted(view.state.get("joined"), upload.ids_C, upload.ids_C[similar])
        drawer = {
            "category": category_I,
            "joined": joined_N,
            "tell/group": torch.tensor(len(similar)),
        }
        drawer |= {
            "tell/participants": torch.tensor(len(upload)),
            "tell/category": torch.tensor(len(rows)),
        }
        drawer |= {
            "tell/often": _often(joined_N, 0.7 * view.round.number),
            "tell/least": _least(joined_N),
        }
        drawer |= {"tell/elbow": sharpness(s_P), "tell/explained": explained(mean_ID, category_I)}
        return drawer, [Group(("items",), similar, public=False), Group(tuple(view.public))]


@dataclass(frozen=True)
class ItemCategories(Mechanism):
    """The item membership alone, where everybody shares one table: Table 2's Item_S and Item_SC."""

    categories: int = 30  # K
    name: str = "item categories"

    def __post_init__(self) -> None:
        positive(self.name, categories=self.categories)

    def send(self, view: ServerView) -> Sent:
        return Sent(dict(view.state))

    def end_round(self, view: ServerView) -> FieldDict:
        return {
            "category": membership(
                view.public["items"], self.categories, view.server_rng.fold("k-means")
            )
        }


@dataclass(frozen=True)
class TableClusters(Grouping):
    """What the paper says fails (Section 2.2, Figure 5): clients clustered by K-means on their whole item tables.

    Each cluster's mean is delivered to it.
    """

    clusters: int = 2
    name: str = "table clusters"
    reads_uploads: Reads = "each"

    def __post_init__(self) -> None:
        positive(self.name, clusters=self.clusters)

    def groups(self, view: ServerView, upload: Upload | Total) -> tuple[FieldDict, Sequence[Group]]:
        if "items" not in view.model.uploaded or isinstance(upload, Total):
            raise CoveyError(
                "K-means of clients needs their own item tables: use a model with keep_items = true"
            )
        kind_P = membership(
            coordinates(upload.model["items"].flatten(1)),
            self.clusters,
            view.server_rng.fold("k-means"),
        )
        size_K = kind_P.bincount()
        drawer = {"tell/largest": size_K.max() / len(upload), "tell/alone": (size_K == 1).sum()}
        rows = [(kind_P == k).nonzero()[:, 0] for k in range(len(size_K))]
        return drawer, [
            *(Group(("items",), r, public=False) for r in rows),
            Group(tuple(view.public)),
        ]


def coordinates(x_PX: Tensor) -> Tensor:
    """The same distances between few points in as few dimensions, [P, P]: K-means need not see the long ones."""
    x_PX = x_PX - x_PX.mean(0)
    square_P, axis_PP = torch.linalg.eigh((x_PX @ x_PX.mT).double())
    return axis_PP * square_P.clamp(min=0).sqrt()


def membership(x_ID: Tensor, categories: int, dice: Rng) -> Tensor:
    """Eq. 7: categories of the rows of the mean table, [I]; none is empty, so there may be fewer than asked for."""
    means = KMeans(min(categories, len(x_ID)), n_init=1, random_state=_draw(dice, 2**31))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than categories
        found = torch.from_numpy(means.fit_predict(x_ID.double().cpu().numpy())).long()
    return found.unique(return_inverse=True)[1].to(x_ID.device)


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
    return order_P[: int(_gaps(s_P).argmax()) + 1].sort().values


def _gaps(s_P: Tensor) -> Tensor:
    share_P = torch.arange(len(s_P), device=s_P.device).to(s_P) / max(len(s_P) - 1, 1)
    return (s_P - s_P[0] - share_P * (s_P[-1] - s_P[0])).abs()


def sharpness(s_P: Tensor) -> Tensor:
    """Figure 6: the largest gap to that line as a share of its fall; 0 where there is no elbow, 1 for one step."""
    s_P = s_P.sort(descending=True).values
    return _gaps(s_P).max() / (s_P[0] - s_P[-1]).clamp(min=1e-12)


def explained(mean_ID: Tensor, category_I: Tensor) -> Tensor:
    """Figure 3: the share of the items' variance that lies between the categories."""
    x_ID = mean_ID.double() - mean_ID.double().mean(0)
    member_KI = members(category_I).to(x_ID)
    sum_KD = member_KI @ x_ID
    between = (sum_KD.square().sum(1) / member_KI.sum(1)).sum()
    return between / x_ID.square().sum().clamp(min=1e-12)


def _counted(before: Tensor | None, here: Tensor, joined: Tensor) -> Tensor:
    """In how many rounds each client was of the group, [N]; -1: it never took part."""
    high = int(here.max()) + 1
    old_N = here.new_full((high,), -1) if before is None else before
    old_N = torch.cat([old_N, here.new_full((max(high - len(old_N), 0),), -1)])
    old_N = old_N.index_put((here,), old_N[here].clamp(min=0))
    return old_N.index_put((joined,), old_N[joined] + 1)


def _often(joined_N: Tensor, rounds: float) -> Tensor:
    """Figure 2: the share of those who ever took part that were of the group in more than so many rounds."""
    return (joined_N[joined_N >= 0] > rounds).double().mean()


def _least(joined_N: Tensor) -> Tensor:
    """Figure 2: the rounds of the client that was of the group least often."""
    return joined_N[joined_N >= 0].min()


def _draw(dice: Rng, high: int) -> int:
    return int(dice.integers(high, 1))


@dataclass(frozen=True)
class ItemContrast(WholeTableLoss):
    """Supervised contrastive learning of a client's whole item table, the server's categories as labels.

    `reading` is Eq. 8 as the published code has it or as it is printed. `sample` draws so many items in each
    step, and the denominator is estimated from them; 0: all items.
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
            raise CoveyError(
                f"{self.name}: only the published reading has a sampled form; set sample = 0"
            )

    def precompute(self, view: ClientView) -> Sent:
        """The slope at the table that most clients start from, such as the group's: their first step shares it."""
        category_I = view.received.shared.get("category")
        same_C = (
            None
            if category_I is None or self.sample
            else _alike(view.params["items"], len(view.rng.key_C))
        )
        if category_I is None or same_C is None:
            return Sent()
        first = int(same_C.long().argmax()) if len(view.params["items"]) > 1 else 0
        two_2ID = view.params["items"][first].expand(
            2, -1, -1
        )  # products of a lone client round differently
        value_C, slope_CID = self._slope(two_2ID, members(category_I), view.rng)
        return Sent({"value": value_C[:1], "slope": slope_CID[:1]}, {"same": same_C})

    def prepare(self, view: ClientView) -> Fields:
        category_I = view.received.shared.get("category")
        return {} if category_I is None else {"member": members(category_I)}

    def loss(self, view: ClientView) -> Tensor | None:
        table_CID, member_KI = view.params["items"], view.prepared.get("member")
        if member_KI is None or not table_CID.requires_grad:  # it moves nothing but items
            return None
        same_C = view.received.each.get("same") if view.step == 0 else None
        if same_C is None:
            value_C, slope_CID = self._slope(table_CID.detach(), member_KI, view.rng)
        else:
            value_C, slope_CID = self._first(table_CID.detach(), member_KI, view, same_C)
        contrast_C: Tensor = Known.apply(table_CID, value_C, slope_CID)
        return self.weight * contrast_C  # Eq. 9

    def _slope(self, table_CID: Tensor, member_KI: Tensor, rng: Rng) -> Slope:
        if self.reading == "printed":
            return printed(table_CID, member_KI, self.tau)
        drawn_CS = rng.integers(table_CID.shape[1], self.sample) if self.sample else None
        return published(table_CID, member_KI, self.tau, self.tau0, drawn_CS)

    def _first(
        self, table_CID: Tensor, member_KI: Tensor, view: ClientView, same_C: Tensor
    ) -> Slope:
        """The first step, where only those that started elsewhere compute for themselves."""
        value_C = view.received.shared["value"].expand(len(table_CID)).clone()
        slope_CID = view.received.shared["slope"].expand_as(table_CID).clone()
        rest = (~same_C).nonzero()[:, 0]
        if len(rest):
            rest = torch.cat([rest, rest[:1]]) if len(rest) == 1 else rest
            value_C[rest], slope_CID[rest] = self._slope(
                table_CID[rest], member_KI, view.rng.take(rest)
            )
        return value_C, slope_CID

    def extra_floats(self, n_rows: int) -> int:
        if not self.weight:
            return 0
        if self.sample:
            return self.sample * n_rows
        return (
            n_rows * n_rows // 2
            if n_rows <= HELD and self.reading == "published"
            else 4 * TILE * n_rows
        )

    def compared_pairs(self, n_rows: int) -> int:
        return n_rows * (self.sample or n_rows) if self.weight else 0


def _alike(table_CID: Tensor, many: int) -> Tensor | None:
    """Which clients start from the commonest table, [C]; None where all differ."""
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

"""FedFast (Muhammad et al., Going Beyond Average for Faster Training of Federated Recommender
Systems, KDD 2020).

The server holds the user vectors and clusters them. ActvSAMP draws about as many clients from each
cluster; these are the delegates of their clusters. ActvAGG averages item rows by how far delegates
moved them, and moves the vectors of the other clients of a cluster, the subordinates, as its
delegates moved theirs. Shape suffixes: P = delegates, K = clusters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.aggregate.combine import Mean
from covey.aggregate.fold import total_of
from covey.core import Answers, CoveyError, FieldDict, Fields, Ragged, Rng, Rows, Upload
from covey.core.checks import positive
from covey.core.ragged import offsets_of
from covey.mechanism import Combine, Mechanism, Reads, ServerView

from .clustering import kmeans


@dataclass(frozen=True)
class ActiveAverage(Combine):
    """Weights a client's item row by the L1 norm of its update, and all else by the client."""

    reads_uploads: Reads = "each"

    def combine(self, upload: Answers, names: Sequence[str]) -> tuple[Fields, Fields]:
        assert isinstance(upload, Upload)
        tables = {k: v for k, v in upload.update.items() if isinstance(v, Rows) and k in names}
        rest = {k: v for k, v in upload.update.items() if k not in tables}
        update, model = Mean().combine(replace(upload, update=rest), names)
        for name, rows in tables.items():
            q_T1 = rows.values.abs().sum(1, keepdim=True)
            both = replace(rows, values=torch.cat([q_T1 * rows.values, q_T1], 1))
            one_C = torch.ones_like(upload.weight_C)
            sum_ID = total_of(Upload(upload.ids_C, one_C, {name: both})).update[name]
            update[name] = sum_ID[:, :-1] / sum_ID[:, -1:].clamp(min=1e-30)
        return update, model


@dataclass(frozen=True)
class ActiveClients(Mechanism):
    """Clusters clients by their vectors, draws delegates, and moves subordinates with them.

    There are at most as many clusters as different vectors, so none is empty. With more clusters
    than places in the cohort, each of a random choice of clusters sends one delegate. In a cluster
    without delegates no client moves.
    """

    clusters: int = 20  # p
    gamma: float = 1.0  # how far subordinates move in the first round; 0: not at all
    fade: float = 0.9  # factor of gamma from one round to the next
    name: str = "active clients"

    def __post_init__(self) -> None:
        positive(self.name, clusters=self.clusters)
        if self.gamma < 0 or not 0 <= self.fade <= 1:
            raise CoveyError(f"{self.name}: gamma is at least 0, and fade from 0 to 1")

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        if "user" not in view.model.uploaded:
            wrong = f"{self.name!r} clusters the clients' vectors"
            raise CoveyError(f"{wrong}: use covey.models.mf:MF with upload_user = true")
        return self.admit_clients(view, enrolment)

    def admit_clients(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        """The server draws the first vectors of new clients and hands them out."""
        state, new_C = view.state, view.round.ids_C
        start = Rng.server(view.seed, 0, "start").to(new_C.device)
        user_CD = view.model.private(view.client_rng.home("birth"), start)["user"]
        user_CD = user_CD.to(view.public["items"])
        user_CD = torch.cat([state["user"], user_CD]) if state else user_CD
        ids_N, order = torch.cat([state.get("ids", new_C[:0]), new_C]).sort()
        state = {"ids": ids_N, "user": user_CD[order], "moved": new_C}
        return {**state, "cluster": self._clusters(view, state["user"])}

    def _clusters(self, view: ServerView, user_ND: Tensor) -> Tensor:
        return kmeans(user_ND, self.clusters, int(view.server_rng.integers(2**31, 1)))

    def begin_round(self, view: ServerView) -> FieldDict:
        return {**view.state, "moved": view.state["ids"][:0]}

    def select_cohort(self, view: ServerView, everyone: Tensor) -> Tensor | None:
        """ActvSAMP: the first of each cluster in a random order, then the second, and so on."""
        cluster_N = view.state["cluster"]
        rng, size_K = view.server_rng.to(cluster_N.device), cluster_N.bincount()
        order_N = rng.fold("clients").permutation(len(cluster_N))[0]
        order_N = order_N[cluster_N[order_N].argsort(stable=True)]  # cluster after cluster
        place_N = Ragged(order_N, offsets_of(size_K)).place
        turn_K = rng.fold("clusters").permutation(len(size_K))[0]
        turn_N = place_N * len(size_K) + turn_K[cluster_N[order_N]]
        chosen_C = order_N[turn_N.argsort()[: len(view.round.ids_C)]].sort().values
        return torch.as_tensor(view.state["ids"][chosen_C])

    def receive_uploads(self, view: ServerView, upload: Upload) -> tuple[FieldDict, Fields]:
        """ActvAGG of the users: delegates keep their vectors, subordinates move with them."""
        ids_N, user_ND = view.state["ids"], view.state["user"].clone()
        place_P = torch.searchsorted(ids_N, upload.ids_C)
        moved_PD = upload.model["user"] - user_ND[place_P]
        user_ND[place_P] = upload.model["user"]
        cluster_N = self._clusters(view, user_ND)
        count_K = cluster_N[place_P].bincount(minlength=int(cluster_N.max()) + 1)
        sum_KD = user_ND.new_zeros(len(count_K), user_ND.shape[1])
        mean_KD = sum_KD.index_add_(0, cluster_N[place_P], moved_PD) / count_K.clamp(min=1)[:, None]
        follows_N = count_K[cluster_N] > 0
        follows_N[place_P] = False
        gamma = self.gamma * self.fade ** (view.round.number - 1)
        user_ND[follows_N] += gamma * mean_KD[cluster_N[follows_N]]
        moved_C = ids_N[follows_N] if gamma else ids_N[:0]
        metrics = {"tell/subordinates": follows_N.sum(), "tell/clusters": (count_K > 0).sum()}
        state = {"ids": ids_N, "user": user_ND, "cluster": cluster_N, "moved": moved_C}
        return {**state, **metrics}, {}

    def hand_out(self, view: ServerView, everyone: Tensor) -> tuple[Tensor, Fields]:
        place_C = torch.searchsorted(view.state["ids"], view.state["moved"])
        return view.state["moved"], {"user": view.state["user"][place_C]}

"""PerFedRec (Luo et al., Personalized Federated Recommendation via Joint Representation Learning,
User Clustering, and Model Adaptation, CIKM 2022).

A client propagates over its own graph and uploads its user vector. The server clusters these
vectors, and keeps an item table for each cluster and one for all clients. A client mixes the scores
of the global model, its cluster's and its own. Shape suffixes: K = models, P = participants.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core import Answers, CoveyError, FieldDict, Fields, Rng, Sent, Total, Upload, positive
from covey.mechanism import ClientView, Group, Grouping, Mechanism, Reads, ServerView
from covey.models.base import History, Model
from covey.models.local_graph import LocalGraph

from .clustering import centres, kmeans
from .gpfedrec import latest, places


@dataclass(frozen=True)
class ClusteredGraph(LocalGraph):
    """A user's own graph; the user vector is uploaded. The client knows its cluster; 0 is none."""

    kept: tuple[str, ...] = ("user", "cluster")
    uploaded: tuple[str, ...] = ("user",)
    tuned: tuple[str, ...] = ("items",)
    given: ClassVar[tuple[str, ...]] = ("cluster",)

    def private(self, rng: Rng, start: Rng) -> Fields:
        user_CD = super().private(rng, start)["user"]
        return {"user": user_CD, "cluster": torch.zeros_like(user_CD[:, :1])}


@dataclass(frozen=True)
class UserClusters(Grouping):
    """Clusters clients by their latest user vectors; each model moves by its clients' mean update.

    k-means begins at the centres of the last round, so that a cluster stays the same one.
    """

    clusters: int = 5
    name: str = "user clusters"
    reads_uploads: Reads = "each"

    def __post_init__(self) -> None:
        positive(self.name, clusters=self.clusters)

    def send(self, view: ServerView) -> Sent:
        return Sent(each={"cluster": self._cluster(view.state, view.round.ids_C)})

    def _cluster(self, state: FieldDict, ids_C: Tensor) -> Tensor:
        """The clusters of clients, from 1; 0 for those that have not uploaded anything."""
        if "ids" not in state:
            return torch.zeros_like(ids_C)
        place_C, found_C = places(state["ids"], ids_C)
        return torch.where(found_C, state["cluster"][place_C], 0)

    def groups(self, view: ServerView, upload: Answers) -> tuple[FieldDict, Sequence[Group]]:
        if isinstance(upload, Total) or "user" not in upload.model:
            wrong = f"{self.name!r} reads the user vectors of single clients"
            raise CoveyError(f"{wrong}: use covey.methods.perfedrec:ClusteredGraph")
        cluster_P = self._cluster(view.state, upload.ids_C)
        rows = [(k, (cluster_P == k).nonzero()[:, 0]) for k in range(1, self.clusters + 1)]
        groups = [Group(("items",), at, prefix=f"cluster {k}/") for k, at in rows if len(at)]
        state = latest(view.state, upload.ids_C, upload.model["user"])
        seed = int(view.server_rng.fold("k-means").integers(2**31)[0])
        label_N = kmeans(state["table"], self.clusters, seed, view.state.get("centre"))
        state |= {"cluster": label_N + 1, "centre": centres(state["table"], label_N)[1:]}
        state["tell/largest"] = label_N.bincount().max() / len(label_N)
        return state, [*groups, Group(tuple(view.model.shared))]


def tables(params: Fields) -> list[Tensor]:
    """The item table of all clients, then those of the clusters, which begin as the same."""
    known = [int(k[8:-6]) for k in params if k.startswith("cluster ")]
    names = (f"cluster {k}/items" for k in range(1, max(known, default=0) + 1))
    return [params["items"], *(params.get(name, params["items"]) for name in names)]


@dataclass(frozen=True)
class Adaptation(Mechanism):
    """Mixes the models: `cluster` and `local` are weights, and the global model has the rest.

    Training begins at the mixture of the first two. The local model is what a client has trained.
    """

    cluster: float = 0.3
    local: float = 0.1
    name: str = "adaptation"
    listens: str = "user clusters"

    def __post_init__(self) -> None:
        if min(self.cluster, self.local) < 0 or self.cluster + self.local > 1:
            wrong = f"{self.name}: cluster = {self.cluster}, local = {self.local}"
            raise CoveyError(f"{wrong}; weights are at least 0, and both together at most 1")

    @property
    def share(self) -> float:
        """The cluster's share in what is not local."""
        return self.cluster / (1 - self.local) if self.cluster else 0.0

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        if bool(self.local) != ("items" in view.model.tuned):
            use = 'tuned = ["items"]' if self.local else "tuned = []"
            raise CoveyError(f"{self.name}: with local = {self.local}, set model.{use}")
        return {}

    def renew(self, view: ClientView) -> Fields:
        cluster_C, found = view.received.each.get("cluster"), tables(view.params)
        if cluster_C is None or not self.share:
            return {}
        own_CID = torch.cat(found)[cluster_C.clamp(max=len(found) - 1)]
        mixed_CID = torch.lerp(found[0], own_CID, self.share)
        return {"items": mixed_CID, "cluster": cluster_C[:, None].to(mixed_CID)}

    def base_model(self, params: Fields) -> tuple[Model, Fields] | None:
        found = tables(params)
        if not self.share or len(found) == 1:
            return None
        base = ClusterScores(many=len(found), share=self.share)
        return base, {**{k: params[k] for k in base.kept}, "items": torch.cat(found, 2)}

    def tuned_share(self) -> float:
        return self.local


@dataclass(frozen=True)
class ClusterScores(ClusteredGraph):
    """What the cluster adds to the global scores; `items` has all tables side by side."""

    many: int = 1
    share: float = 0.0

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        every = params | {"user": params["user"].repeat(1, self.many)}
        u_CKD = super().user(every, history, rng, training).unflatten(-1, (self.many, -1))
        own_C = params["cluster"][:, 0].long().clamp(max=self.many - 1)
        sign_CK = F.one_hot(own_C, self.many) - F.one_hot(torch.zeros_like(own_C), self.many)
        return self.share * (u_CKD * sign_CK[..., None]).flatten(1)

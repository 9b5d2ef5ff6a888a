"""GPFedRec (Zhang et al., Graph-Guided Personalization for Federated Recommendation, KDD 2024).

The server links clients by their item tables, averages the tables of each client's neighbours into
a personal table, and publishes the average of the personal tables. Clients start from the public
table and are pulled to their personal one. Shape suffix: P = participants.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core import Answers, CoveyError, FieldDict, Fields, Rows, Sent, Upload, positive
from covey.mechanism import ClientView, Group, Grouping, Reads, ServerView

from .weighted import WholeTableLoss


@dataclass(frozen=True)
class UserGraph(Grouping):
    """Finds the neighbours of each client by the cosines of whole item tables.

    The paper links similar clients; the published code, which takes distances, dissimilar ones.
    """

    links: Literal["dissimilar", "similar"] = "dissimilar"
    threshold: float = 1.0  # times the mean over all pairs
    neighbours: int = 0  # over 0: this number of neighbours instead of a threshold
    layers: int = 1
    name: str = "user graph"
    reads_uploads: Reads = "each"

    def __post_init__(self) -> None:
        positive(self.name, layers=self.layers)
        if self.neighbours < 0:
            wrong = f"{self.name}: neighbours = {self.neighbours}"
            raise CoveyError(f"{wrong}; 0 is by threshold, else at least 1")

    def send(self, view: ServerView) -> Sent:
        """Sends r_u, the table of the client's last participation, or the public one."""
        if "table" not in view.state:
            return Sent()
        place_C, found_C = places(view.state["ids"], view.round.ids_C)
        found_C11, table_CID = found_C[:, None, None], view.state["table"][place_C]
        return Sent(each={"table": table_CID.where(found_C11, view.public["items"])})

    def groups(self, view: ServerView, upload: Answers) -> tuple[FieldDict, Sequence[Group]]:
        moved = upload.update.get("items") if isinstance(upload, Upload) else None
        if not isinstance(upload, Upload) or not isinstance(moved, Rows):
            wrong = "the user graph compares the clients' updates of a shared item table"
            raise CoveyError(f"{wrong}: use keep_items = false")
        table_PID = moved.dense() + view.public["items"]
        links_PP = self.graph(table_PID.flatten(1))
        paths_PP = torch.linalg.matrix_power(links_PP, self.layers)
        own_PID = (paths_PP @ table_PID.flatten(1)).view_as(table_PID)
        # The average of all r_u, in which each table has the weight of its links.
        weight_P = paths_PP.sum(0).to(upload.weight_C)
        state = latest(view.state, upload.ids_C, own_PID)
        state["tell/links"] = (links_PP > 0).sum(1).double().mean()
        return state, [Group(tuple(view.public), weight=weight_P)]

    def graph(self, table_PE: Tensor) -> Tensor:
        """In each row equal shares of a client's neighbours, or of itself without any, [P, P]."""
        unit_PE = F.normalize(table_PE, dim=1)
        s_PP = unit_PE @ unit_PE.mT
        if self.links == "dissimilar":
            s_PP = (1 - s_PP).fill_diagonal_(0)  # no client is its own neighbour
        if self.neighbours:
            near_PK = s_PP.topk(min(self.neighbours, len(s_PP)), dim=1).indices
            linked_PP = torch.zeros_like(s_PP).scatter_(1, near_PK, 1.0)
        else:
            linked_PP = (s_PP > self.threshold * s_PP.mean()).to(s_PP)
        alone_P = linked_PP.sum(1) == 0
        linked_PP = linked_PP + torch.diag(alone_P.to(s_PP))
        return linked_PP / linked_PP.sum(1, keepdim=True)


def places(known_N: Tensor, ids_C: Tensor) -> tuple[Tensor, Tensor]:
    """Where clients are among known ones, ascending, and whether they are known."""
    ids_C = ids_C.to(known_N.device)
    place_C = torch.searchsorted(known_N, ids_C).clamp(max=len(known_N) - 1)
    return place_C, known_N[place_C] == ids_C


def latest(state: FieldDict, ids_P: Tensor, table_PID: Tensor) -> FieldDict:
    """The latest table of every client that ever took part, by ascending id."""
    if "ids" in state:
        stay = ~torch.isin(state["ids"], ids_P)
        ids_P = torch.cat([state["ids"][stay], ids_P])
        table_PID = torch.cat([state["table"][stay], table_PID]) if bool(stay.any()) else table_PID
    ids_N, order = ids_P.sort()
    in_order = bool((order.diff() == 1).all())
    return {"ids": ids_N, "table": table_PID if in_order else table_PID[order]}


@dataclass(frozen=True)
class GraphPull(WholeTableLoss):
    """Adds the mean squared distance of a client's table to its neighbours' average to the loss."""

    weight: float = 1.0  # lambda
    name: str = "graph pull"
    listens: str = "user graph"

    def prepare(self, view: ClientView) -> Fields:
        """Before the first aggregation clients are pulled to the table from which all start."""
        return {"table": view.received.each.get("table", view.params["items"].detach().clone())}

    def loss(self, view: ClientView) -> Tensor | None:
        return self.weight * (view.params["items"] - view.prepared["table"]).square().mean((1, 2))

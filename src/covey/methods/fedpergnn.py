"""FedPerGNN (Wu et al., A federated graph neural network framework for privacy-preserving
personalization, Nature Communications 2022).

Clients train a graph network on their own items. A third party extends their graphs: it matches
clients by encrypted item ids and hands out the vectors of anonymous neighbours. Pseudo items are
`covey.privacy.pseudo_items`, and the noise is `covey.privacy.uploads`. Shape suffixes: K =
neighbours, T = items of all clients together, M = clients that the third party knows.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from covey.core import Answers, CoveyError, FieldDict, Fields, Ragged, Rng, Sent, Upload
from covey.core.checks import positive
from covey.evaluate.ranking import distinct
from covey.mechanism import ClientView, Disclosure, Mechanism, Reads, ServerView, no_clients

from .gpfedrec import places

BITS = 30  # of each half of the key, so that it fits into a message
AT_ONCE = 1024  # clients that are compared with all others at a time


@dataclass(frozen=True)
class GraphExpansion(Mechanism):
    """The learning server gives out the key; clients keep the neighbours that they were sent."""

    name: str = "expansion"
    listens: str = "third party"

    def send(self, view: ServerView) -> Sent:
        if view.step != "report":
            return Sent()
        return Sent({"key": view.server_rng.home(self.name).integers(2**BITS, 2)[0]})

    def renew(self, view: ClientView) -> Fields:
        found = view.received.each.get("neighbours")
        return {} if found is None else {"neighbours": found}


@dataclass(frozen=True)
class ThirdParty(Mechanism):
    """Matches clients by encrypted items, as a party apart from the learning server.

    It knows what `disclosures` declares, so also who shares items with whom. It uses nothing that
    the learning server has. Neighbours are those whose lists have the largest cosines.
    """

    first: int = 5  # the round of the first expansion; user vectors mean little before
    every: int = 10  # rounds between expansions
    name: str = "third party"
    listens: str = "expansion"
    exchanges: frozenset[str] = frozenset({"report"})
    reads_reports: Reads = "each"

    def __post_init__(self) -> None:
        positive(self.name, first=self.first, every=self.every)

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        if not getattr(view.model, "neighbours", 0):
            use = "use covey.models.local_graph:GraphAttention with neighbours over 0"
            raise CoveyError(f"the model has no room for the neighbours of {self.name!r}; {use}")
        return {}

    def select_reporters(self, view: ServerView, everyone: Tensor) -> Tensor | None:
        late, since = divmod(view.round.number - self.first, self.every)
        return everyone if late >= 0 and not since else no_clients().to(everyone.device)

    def report(self, view: ClientView) -> FieldDict:
        """The client's distinct items, encrypted and in the order of their codes; its vector."""
        codes = encrypted(view.data.items, view.received.shared["key"], view.catalogue.n_items)
        return {"items": codes, "user": view.params["user"]}

    def receive_reports(self, view: ServerView, reports: Answers) -> tuple[FieldDict, Fields]:
        assert isinstance(reports, Upload)
        ids_M, order_M = reports.ids_C.sort()
        codes, user_MD = (reports.take(order_M).extra[self.name][k] for k in ("items", "user"))
        near_MK = matched(codes, getattr(view.model, "neighbours", 0))
        mean = (near_MK >= 0).sum(1).double().mean()
        return {"ids": ids_M, "near": near_MK, "user": user_MD, "tell/neighbours": mean}, {}

    def send(self, view: ServerView) -> Sent:
        """Sends each client the vectors of its neighbours, [C, K, D]; zeros where it has fewer."""
        if view.step != "train" or "ids" not in view.state:
            return Sent()
        place_C, found_C = places(view.state["ids"], view.round.ids_C)
        near_CK = torch.where(found_C[:, None], view.state["near"][place_C], -1)
        near_CKD = view.state["user"][near_CK.clamp(min=0)] * (near_CK >= 0)[..., None]
        return Sent(each={"neighbours": near_CKD})

    def disclosures(self) -> tuple[Disclosure, ...]:
        to = "to the third party, not to the learning server"
        items = f"{to}: the user's items under ids that the key hides, and how many they are"
        vector = f"{to}: the user vector, which it hands to neighbours without a name"
        codes = Disclosure("report", f"{self.name}/items", items, largest=2.0**31)
        return codes, Disclosure("report", f"{self.name}/user", vector)


def encrypted(items: Ragged, key: Tensor, n_items: int) -> Ragged:
    """The distinct items of each client under a key, ascending; equal items have equal codes.

    A permutation that the key chooses stands for the cipher; it is not meant to resist an attack.
    """
    word = (key[:1] << BITS | key[1:]).to(items.values.device)
    code_T = Rng(word, word).order_at(n_items, items.values[None])[0]
    return distinct(items.like(code_T))


def matched(codes: Ragged, many: int) -> Tensor:
    """For each client, the places of the `many` others with the most similar lists; -1: none."""
    column, start = codes.values.cpu().numpy(), codes.offsets.cpu().numpy()
    shape = (len(codes), int(column.max(initial=0)) + 1)
    lists = csr_array((np.ones(len(column)), column, start), shape=shape)
    length_M, near_MK = np.maximum(np.diff(start), 1), torch.full((len(codes), many), -1)
    for some in torch.arange(len(codes)).split(AT_ONCE):
        cosine_CM = torch.from_numpy((lists[some.numpy()] @ lists.T).toarray() / length_M**0.5)
        cosine_CM[torch.arange(len(some)), some] = 0
        best_CK, place_CK = cosine_CM.topk(min(many, len(codes)), 1)
        near_MK[some, : best_CK.shape[1]] = torch.where(best_CK > 0, place_CK, -1)
    return near_MK.to(codes.values.device)

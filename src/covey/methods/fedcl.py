"""FedCL: contrastive learning with semi-hard negatives (Wu et al., 2022, arXiv 2204.09850).

Clients report a noisy user vector; the server clusters the latest report of every client and sends
each client of a round items that its cluster scores high. The paper's other negatives and Eq. 1 are
`NextItemSoftmax`, with `in_batch=True` for a sequence model; its update is one SGD step, summed.
Shape suffixes: K = clusters, H = items of a pool, T = items sent to a client.
"""

import logging
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from covey.contract.ledger import Disclosure, counts_given
from covey.core import Answers, CoveyError, FieldDict, Fields, Ragged, offsets_of
from covey.core.checks import among_choices, positive
from covey.core.messages import Sent, Upload
from covey.core.sampling import distinct_ranks
from covey.mechanism import ClientView, Examples, Mechanism, ServerView, no_clients
from covey.privacy.discrete import released

from .clustering import centres, kmeans, nearest, ward

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HardNegatives(Mechanism):
    """Sends semi-hard negatives; `cluster`, `pool` and epsilon = inf give the paper's controls."""

    clip: float = 1.0  # delta, L1
    epsilon: float = 4.0  # of one report, or of all together if repeat = "budget"; inf: no noise
    repeat: Literal["round", "pass", "once", "budget"] = "pass"  # when a client reports
    reports: int = 10  # that share epsilon if repeat = "budget"
    noise: Literal["simulated", "device"] = "simulated"  # from the run's seed or device entropy
    first: int = 1  # pass in which the reports begin; before, there are no hard negatives
    latest: bool = True  # cluster all clients' latest reports, not only this round's (Algorithm 1)
    cluster: Literal["ward", "kmeans", "mean", "none"] = "ward"  # whose vector retrieves
    clusters: int = 25  # C
    every: int = 1  # passes between clusterings; 0 with repeat = "round": in every round
    pool: Literal["similar", "hardest", "random", "uniform", "popular"] = "similar"  # of T items
    difficulty: float = 0.25  # R: share of the catalogue that is hard for a cluster
    count: int = 20  # T
    name: str = "fedcl"
    exchanges: frozenset[str] = frozenset({"report"})

    def __post_init__(self) -> None:
        among_choices(self.name, self)
        positive(self.name, clip=self.clip, epsilon=self.epsilon, clusters=self.clusters)
        positive(self.name, reports=self.reports, first=self.first)
        if not math.isfinite(self.clip):
            wrong = f"{self.name}: clip = {self.clip}"
            raise CoveyError(f"{wrong}; noise needs a bound; epsilon = inf is no noise")
        if not 0 <= self.difficulty <= 1 or self.count < 0:
            wrong = f"{self.name}: difficulty is a share of the items, 0 to 1, and count at least 0"
            raise CoveyError(wrong)
        if self.every < (0 if self.repeat == "round" else 1):
            wrong = f"{self.name}: every = {self.every}"
            raise CoveyError(f"{wrong}; use at least 1 (or 0 with repeat = 'round')")

    @property
    def epsilon_each(self) -> float:
        return self.epsilon / self.reports if self.repeat == "budget" else self.epsilon

    def max_reports(self) -> int:
        return {"once": 1, "budget": self.reports}.get(self.repeat, 0)

    @property
    def retrieves(self) -> bool:
        """Whether items are retrieved by reports."""
        return self.count > 0 and self.pool in ("similar", "hardest")

    # Client.

    def report(self, view: ClientView) -> FieldDict:
        u_CD = view.user()
        if math.isinf(self.epsilon):
            return {"user": clipped(u_CD, self.clip)}
        if self.noise == "device":
            return {"user": released(u_CD, self.clip, self.epsilon_each)}
        scale = 2 * self.clip / self.epsilon_each
        noise_CD = view.rng.laplace(scale, u_CD.shape[1], dtype=u_CD.dtype)
        return {"user": clipped(u_CD, self.clip) + noise_CD}  # Algorithm 1, line 7

    def augment(self, view: ClientView, examples: Examples) -> Examples:
        """The received items that the client does not have are negatives of all its positions."""
        if "items" not in view.received.each:
            return examples
        items_CT, own = view.received.each["items"], view.data.items
        n_items = view.catalogue.n_items
        client_C1 = torch.arange(len(items_CT), device=items_CT.device)[:, None]
        known_T = own.owner * n_items + own.values
        fresh_CT = ~torch.isin(client_C1 * n_items + items_CT, known_T)
        hard = Ragged(items_CT[fresh_CT], offsets_of(fresh_CT.sum(1)))
        return examples.append(hard, torch.zeros(len(hard.values), device=items_CT.device))

    # Server.

    def begin_round(self, view: ServerView) -> FieldDict:
        passes = view.state.get("passes", torch.zeros((), dtype=torch.long))
        return {**view.state, "passes": passes + int(view.round.opens_epoch)}

    def _due(self, view: ServerView) -> bool:
        since = int(view.state["passes"]) - self.first
        if not self.every:
            return since >= 0
        return view.round.opens_epoch and since >= 0 and since % self.every == 0

    def select_reporters(self, view: ServerView, everyone: Tensor) -> Tensor | None:
        waits = not self.retrieves or int(view.state["passes"]) < self.first
        if waits or (self.repeat != "round" and not self._due(view)):
            return no_clients().to(everyone.device)
        if self.repeat == "round":
            return None
        most = self.max_reports() or math.inf
        reports_N = view.state.get("heard", no_clients()).to(everyone.device)
        return everyone[_at(reports_N, everyone) < most]

    def receive_reports(self, view: ServerView, reports: Answers) -> tuple[FieldDict, Fields]:
        """Stores the latest report of every client, and clusters all reports when it is due."""
        assert isinstance(reports, Upload)
        if self.name not in reports.extra:
            return view.state, {}
        report_CD, ids_C = reports.extra[self.name]["user"], reports.ids_C
        state = _stored(view.state, ids_C, report_CD, self.latest)
        if self.cluster == "none":
            return state, {}
        if self._due(view) or "centre" not in view.state or not self.latest:
            return {**state, **self._clustered(view, state["report"], state["known"])}, {}
        member_N = state["member"].clone()
        # Between clusterings a client belongs to the centre that is nearest to its new report.
        member_N[ids_C] = 1 + nearest(report_CD, state["centre"][1:])
        return {**state, "member": member_N}, {}

    def _clustered(self, view: ServerView, report_ND: Tensor, known_N: Tensor) -> FieldDict:
        x_ND = report_ND[known_N]
        wanted = 1 if self.cluster == "mean" else self.clusters
        if len(x_ND) < wanted:
            log.warning("%s: %d reports make fewer than %d clusters", self.name, len(x_ND), wanted)
        if self.cluster == "kmeans":
            label_N = kmeans(x_ND, wanted, int(view.server_rng.fold("kmeans").integers(2**31)[0]))
        elif wanted > 1:
            label_N = ward(x_ND, wanted)
        else:
            label_N = torch.zeros_like(x_ND[:, 0], dtype=torch.long)
        # 0 is the mean of all reports, for clients that never reported.
        member_N = torch.zeros_like(known_N, dtype=torch.long)
        member_N[known_N] = 1 + label_N
        return {"member": member_N, "centre": centres(x_ND, label_N)}

    def send(self, view: ServerView) -> Sent:
        """Lines 11 to 14: T items of the best R %, drawn for each client separately."""
        waits = self.retrieves and "report" not in view.state
        if view.step != "train" or not self.count or waits:
            return Sent()
        if self.pool == "random":  # a fixed pool for each client, as that of a cluster nearly is
            n_items, rng = view.catalogue.n_items, view.client_rng.home(f"{self.name} pool")
            rank_CT = self._ranks(view, math.ceil(self.difficulty * n_items))
            return Sent(each={"items": rng.order_at(n_items, rank_CT)})
        pool_KH, row_C = self._pools(view)
        return Sent(each={"items": pool_KH[row_C[:, None], self._ranks(view, pool_KH.shape[1])]})

    def _ranks(self, view: ServerView, size: int) -> Tensor:
        """Draws places in a pool of that size, T for each client."""
        unit_CT = view.client_rng.fold("hard").uniform(min(self.count, size))
        return distinct_ranks(unit_CT, torch.full_like(view.round.ids_C, size))

    def _pools(self, view: ServerView) -> tuple[Tensor, Tensor]:
        """Pools of items, [K, H], and the pool of each client, [C]."""
        ids_C, n_items = view.round.ids_C, view.catalogue.n_items
        size = math.ceil(self.difficulty * n_items)
        if self.pool == "uniform":
            return torch.arange(n_items, device=ids_C.device)[None], torch.zeros_like(ids_C)
        if self.pool == "popular":
            count_I = view.catalogue.popularity_I
            if count_I is None:
                wrong = f"{self.name}: pool = 'popular' needs the items' counts"
                raise CoveyError(f"{wrong}, which are not known; use another pool")
            return count_I.to(ids_C.device).topk(size).indices[None], torch.zeros_like(ids_C)
        if self.cluster != "none":  # a client that never reported gets the first pool
            query_KD, row_C = view.state["centre"], _at(view.state["member"], ids_C)
        else:
            report_ND, known_N = view.state["report"], view.state["known"]
            own_CD = report_ND[ids_C.clamp(max=len(report_ND) - 1)]
            query_KD = torch.cat([report_ND[known_N].mean(0, keepdim=True), own_CD])
            row_C = torch.arange(1, len(ids_C) + 1, device=ids_C.device) * _at(known_N, ids_C)
        size = min(self.count, n_items) if self.pool == "hardest" else size
        return (query_KD @ view.public["items"].mT).topk(size, dim=1).indices, row_C

    def disclosures(self) -> tuple[Disclosure, ...]:
        if math.isinf(self.epsilon):
            how = "and no noise"
        elif self.noise == "device":
            how = "with discrete Laplace noise from the device's entropy"
        else:
            how = "with Laplace noise simulated from the run's seed"
        what = f"the user vector, clipped to L1 norm {self.clip:g}, {how}"
        if self.max_reports():
            what += f"; {self.max_reports()} at most, then the last one again"
        user, releases = f"{self.name}/user", self.max_reports()
        report = Disclosure("report", user, what, self.epsilon_each, releases=releases)
        counts = self.pool == "popular" and self.count
        return (report, counts_given(self.name)) if counts else (report,)


def clipped(u_CD: Tensor, most: float) -> Tensor:
    """Scales vectors down to an L1 norm of at most `most`."""
    return u_CD * (most / u_CD.abs().sum(1, keepdim=True).clamp(min=most))


def _stored(state: FieldDict, ids_C: Tensor, report_CD: Tensor, latest: bool) -> FieldDict:
    """The state with new reports, and without all others if not `latest`."""
    before = len(state.get("heard", ()))
    height = max(int(ids_C.max()) + 1, before)
    new = {
        "report": report_CD.new_zeros(height, report_CD.shape[1]),
        "known": ids_C.new_zeros(height, dtype=torch.bool),
        "heard": ids_C.new_zeros(height),  # the number of reports
        "member": ids_C.new_zeros(height),
    }
    for name, value in new.items():
        if name in state and (latest or name == "heard"):
            value[:before] = state[name]
    new["report"][ids_C], new["known"][ids_C] = report_CD, True
    new["heard"][ids_C] += 1
    return {**state, **new}


def _at(value_N: Tensor, ids_C: Tensor) -> Tensor:
    """The values of clients; 0 for clients beyond the table."""
    if not len(value_N):
        return torch.zeros_like(ids_C)
    return torch.where(ids_C < len(value_N), value_N[ids_C.clamp(max=len(value_N) - 1)], 0)

"""Subspace iteration by sums over clients (Halko et al., 2011): a few rounds, no training.

With A the interactions divided by powers of user and item degrees, a round computes A'A Q: client u
adds a_u (a_u' Q), which touches the rows of its own items only, and the server takes the leading
directions of the sum. Item degrees are one more column. A last exchange chooses the filter: clients
send only how well each of a few filters ranks their own validation items.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from covey.core import CoveyError, FieldDict, Fields, Ragged, Rows
from covey.core.checks import positive
from covey.core.messages import Answers, Sent, Total, Upload
from covey.evaluate.metrics import EvaluateConfig, measure
from covey.evaluate.ranking import distinct as sorted_lists
from covey.evaluate.ranking import nothing, ranks_full, span
from covey.mechanism import ClientView, Disclosure, History, Mechanism, Reads, ServerView
from covey.models.base import dot
from covey.models.spectral import Spectral

from .filters import Response, leading, low_rank_ease, response

TABLES = ("items", "weight", "filter")  # the parameters of the spectral model
SCORES = 3 << 18  # at a time
BY = EvaluateConfig(metrics=("ndcg@20",))


@dataclass(frozen=True)
class SubspaceIteration(Mechanism):
    """Finds the leading subspace in `sums` rounds, and then chooses among filters if asked to."""

    name: str = "spectral"
    exchanges: frozenset[str] = frozenset({"report"})
    reads_reports: Reads = "total"
    sums: int = 4
    item_power: float = 0.25
    user_power: float = 0.25
    response: Response = "shrunk"
    strength: float = 1.0
    choose: tuple[float, ...] = ()  # strengths to choose from after the sums

    def __post_init__(self) -> None:
        least = min(self.choose, default=1.0)
        positive("spectral", sums=self.sums, strength=self.strength, choose=least)
        if not all(0 <= power <= 1 for power in (self.item_power, self.user_power)):
            raise CoveyError("spectral: item_power and user_power are from 0 (not normalised) to 1")
        if self.choose and self.response in ("linear", "ease"):
            wrong = f"spectral: response = {self.response!r} has nothing to choose"
            raise CoveyError(f"{wrong}; leave out `choose`")

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        check_spectral(self.name, view)
        return {}

    def send(self, view: ServerView) -> Sent:
        if not self.choose or view.round.number <= self.sums or "values" not in view.state:
            return Sent()
        return Sent({"filters": self._filters(view.state["values"], view.public["filter"])})

    def report(self, view: ClientView) -> FieldDict:
        assert isinstance(view.model, Spectral)
        if "filters" in view.received.shared:
            return {"valid": tried(view, view.received.shared["filters"])}
        items, count_T = distinct(view.data.items, view.catalogue.n_items)
        length_C = view.data.items.lengths.clamp(min=1).to(view.params["items"])
        n_C = length_C ** (-2 * self.user_power)
        u_CD = view.model.listed(view.params, History.of(view.data.items)) * n_C[:, None]
        # The last column gives the degrees; EASE needs one more for the diagonal of the weighted
        # X'X, in which a count is squared.
        row_TE = torch.cat([u_CD, torch.ones_like(u_CD[:, :1])], 1)[items.owner]
        if self.response == "ease":
            row_TE = torch.cat([row_TE, (n_C[items.owner] * count_T)[:, None]], 1)
        row_TE = row_TE * count_T[:, None] if bool((count_T > 1).any()) else row_TE
        return {"rows": Rows(items, row_TE, view.catalogue.n_items)}

    def receive_reports(self, view: ServerView, reports: Answers) -> tuple[FieldDict, Fields]:
        assert isinstance(reports, Total)
        fields = reports.extra[self.name]
        if "valid" in fields:
            return self._choose(view, fields["valid"])
        return self._iterate(view, fields["rows"])

    def _iterate(self, view: ServerView, sum_IE: Tensor) -> tuple[FieldDict, Fields]:
        sent = {k: v.double() for k, v in view.public.items()}
        D, sum_IE = sent["items"].shape[1], sum_IE.double()
        degree_I = sum_IE[:, D]
        half_I = degree_I.clamp(min=1) ** self.item_power
        q_ID = sent["items"] * (sent["weight"] * half_I)[:, None]  # by the degrees as now known
        z_ID = sum_IE[:, :D] / half_I[:, None]
        basis_ID, value_D = leading(q_ID, z_ID, 10 * torch.finfo(view.public["items"].dtype).eps)
        has_I = (degree_I > 0).to(half_I)
        fields = {"items": basis_ID * (half_I * has_I)[:, None], "weight": half_I**-2}
        fields["filter"] = response(self.response, value_D, self.strength)
        if self.response == "ease" and view.round.number >= self.sums:
            diagonal_I = sum_IE[:, D + 1] / half_I**2
            fields = low_rank_ease(basis_ID, value_D, diagonal_I, half_I * has_I, self.strength)
            fields["weight"] = torch.where(has_I > 0, fields["weight"], 0)
        return {"values": value_D}, {k: v.to(view.public[k]) for k, v in fields.items()}

    def _choose(self, view: ServerView, sum_J: Tensor) -> tuple[FieldDict, Fields]:
        """Takes the filter that ranks the clients' validation items best; the first of equals."""
        if not bool(sum_J[-1] > 0):
            return view.state, {}  # no client has validation items
        mean_K = sum_J[:-1] / sum_J[-1]
        best = int(mean_K.argmax())
        metrics = {"tell/strength": torch.tensor(self.choose[best]), "tell/valid": mean_K[best]}
        filters_KD = self._filters(view.state["values"], view.public["filter"])
        return {**view.state, **metrics}, {"filter": filters_KD[best]}

    def _filters(self, value_D: Tensor, like: Tensor) -> Tensor:
        return torch.stack([response(self.response, value_D, s) for s in self.choose]).to(like)

    def chosen_options(self, told: dict[str, float]) -> dict[str, Any]:
        strength = told.get("strength")
        return {"strength": strength, "choose": [strength]} if strength else {}

    def disclosures(self) -> tuple[Disclosure, ...]:
        how = "how well each filter ranks the user's validation items, and whether there are any"
        return rows_disclosure(self.name), Disclosure("report", f"{self.name}/valid", how)


def check_spectral(name: str, view: ServerView) -> None:
    """Refuses a model that is not spectral, or has a higher rank than there are items."""
    if not isinstance(view.model, Spectral):
        wrong = f"{name!r} fits covey.models.spectral:Spectral alone; set [model] use to that"
        raise CoveyError(wrong)
    view.model.check(view.catalogue.n_items)


def rows_disclosure(name: str) -> Disclosure:
    """What a summand of A'A Q discloses."""
    what = "the user's vector in the rows of the user's items"
    clear = "in clear it names them, in a secure sum it does not"
    return Disclosure("report", f"{name}/rows", f"{what}; {clear}")


@torch.no_grad()
def tried(view: ClientView, filters_KD: Tensor) -> Tensor:
    """NDCG@20 of each client's validation items by filter, and whether it has any, [C, K + 1]."""
    assert isinstance(view.model, Spectral)
    C, K, items_ID = len(view.data.items), len(filters_KD), view.params["items"]
    held = sorted_lists(nothing(C, items_ID.device) if view.valid is None else view.valid)
    out_CJ = items_ID.new_zeros(C, K + 1)
    out_CJ[:, K] = (held.lengths > 0).to(out_CJ)
    some = (held.lengths > 0).nonzero()[:, 0]
    held, known = held.take(some), view.data.items.take(some)
    u_CD = view.model.listed(view.params, History.of(known))
    many = max(1, SCORES // items_ID.shape[1])
    for at in range(0, len(some), many):
        end = min(at + many, len(some))
        relevant, hidden = span(held, at, end), span(known, at, end)
        for k in range(K):
            score_CI = dot(u_CD[at:end] * filters_KD[k], items_ID)
            ranks = ranks_full(score_CI, relevant, hidden, BY.cutoffs[-1])
            out_CJ[some[at:end], k] = measure(ranks, relevant.lengths, BY)["ndcg@20"].to(out_CJ)
    return out_CJ


def distinct(lists: Ragged, n_items: int) -> tuple[Ragged, Tensor]:
    """The distinct items of each list, and how often each occurs."""
    key_T, count_T = torch.unique(lists.owner * n_items + lists.values, return_counts=True)
    return Ragged.of_keys(key_T, n_items, len(lists)), count_T

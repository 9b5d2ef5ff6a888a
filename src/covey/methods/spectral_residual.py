"""A gradient method on top of the spectral score: the first rounds sum, then the model learns a correction.

The sums, the choice of a filter and the tables are those of `SubspaceIteration`. One more exchange finds
the unit of the score: the slope of the log-odds by which a linear discriminant tells a user's own items
from the others. From then on the spectral score is the offset of every example and of every ranking.
In training, an own item's score leaves that item out of the list: else what the user has looks far better
than what the user is going to have.

Shape suffixes: T = examples of all clients together, D = directions, M = moments.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.contract.examples import Examples
from covey.contract.ledger import Disclosure
from covey.contract.mechanism import Mechanism
from covey.contract.model import History, Model
from covey.contract.views import ClientView, Reads, ServerView
from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.core.messages import Sent, Total, Upload
from covey.core.ragged import FieldDict, Fields, Ragged
from covey.core.rng import Rng
from covey.models.spectral import Spectral
from covey.objectives.pairs import Bce, Bpr

from .spectral import SubspaceIteration, distinct

TABLES = ("items", "weight", "filter")
PUBLIC = "base/"  # how the names of the tables begin once they are published
AT_ONCE = 1 << 15  # examples


@dataclass(frozen=True)
class SpectralResidual(Mechanism):
    name: str = "spectral residual"
    exchanges: frozenset[str] = frozenset({"report"})
    reads_reports: Reads = "total"
    rank: int = 128
    sums: int = 4
    choose: tuple[float, ...] = (
        0.3,
        0.6,
        1.0,
        2.0,
        4.0,
        8.0,
        16.0,
        32.0,
    )  # strengths of the filter; (): 1
    weight: float = 1.0  # of the spectral score, in units of the log-odds; 0: the method without it

    def __post_init__(self) -> None:
        positive(self.name, rank=self.rank, sums=self.sums)
        if self.weight < 0:
            raise CoveyError(f"{self.name}: weight = {self.weight}; it is 0 or more")
        _ = self._inner

    @property
    def _inner(self) -> SubspaceIteration:
        return SubspaceIteration(name=self.name, sums=self.sums, choose=self.choose)

    @property
    def _exchanges(self) -> int:
        """The sums, the choice, and the moments."""
        return self.sums + bool(self.choose) + 1

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        if not isinstance(view.objective, Bce | Bpr):
            raise CoveyError(
                f"{self.name!r} is an offset of single logits: use covey.objectives:Bce or Bpr"
            )
        model = Spectral(self.rank)
        model.check(view.catalogue.n_items)
        start = Rng.server(
            view.seed, 0, "public"
        )  # that of the spectral method, to stand on just what it finds
        tables = model.public(view.catalogue.n_items, start)
        return {
            **{k: v.to(view.public["items"]) for k, v in tables.items()},
            "heard": torch.tensor(0),
        }

    def select_reporters(self, view: ServerView, everyone: Tensor) -> Tensor | None:
        return everyone if self._due(view) else everyone[:0]  # whoever trains in these rounds

    def _due(self, view: ServerView) -> bool:
        return self.weight > 0 and int(view.state["heard"]) < self._exchanges

    def _seen(self, view: ServerView) -> ServerView:
        """As subspace iteration sees it: the tables are its public model, and rounds that nobody heard do not count."""
        tables: Fields = {k: view.state[k] for k in TABLES}
        return replace(
            view, public=tables, round=replace(view.round, number=int(view.state["heard"]) + 1)
        )

    def send(self, view: ServerView) -> Sent:
        if not self._due(view):
            return Sent()
        if view.step != "report":
            return Sent({"wait": torch.tensor(1)})  # there is nothing yet to correct
        if int(view.state["heard"]) == self._exchanges - 1:
            return Sent({**{k: view.state[k] for k in TABLES}, "moments": torch.tensor(1)})
        return Sent(
            {**{k: view.state[k] for k in TABLES}, **self._inner.send(self._seen(view)).shared}
        )

    def report(self, view: ClientView) -> FieldDict:
        tables: Fields = {k: view.received.shared[k][None] for k in TABLES}
        if "moments" in view.received.shared:
            return {"moments": moments(tables, view.data.items, view.catalogue.n_items)}
        return self._inner.report(replace(view, params=tables, model=Spectral(self.rank)))

    def receive_reports(
        self, view: ServerView, reports: Upload | Total
    ) -> tuple[FieldDict, Fields]:
        assert isinstance(reports, Total)
        heard: FieldDict = {"heard": view.state["heard"] + 1}
        if "moments" not in reports.extra[self.name]:
            drawer, tables = self._inner.receive_reports(self._seen(view), reports)
            return {**view.state, **drawer, **tables, **heard}, {}
        unit, shift = log_odds(reports.extra[self.name]["moments"].double())
        assert isinstance(view.objective, Bce | Bpr)
        prior = -math.log(
            view.objective.negatives
        )  # the log-odds of a positive among its negatives
        public = {PUBLIC + k: view.state[k] for k in TABLES}
        public[PUBLIC + "filter"] = view.state["filter"] * (self.weight * unit).to(
            view.state["filter"]
        )
        public[PUBLIC + "shift"] = (self.weight * (shift + prior)).to(view.state["filter"])
        told = {k: v for k, v in view.state.items() if k.startswith("tell/")}
        return {**told, **heard, "tell/unit": unit}, public

    def base_model(self, params: Fields) -> tuple[Model, Fields] | None:
        if PUBLIC + "items" not in params:
            return None
        return Spectral(self.rank), {k: params[PUBLIC + k] for k in TABLES}

    def augment(self, view: ClientView, examples: Examples) -> Examples:
        if "wait" in view.received.shared:
            return examples.keep(torch.zeros_like(examples.label, dtype=torch.bool))
        if (found := self.base_model(view.params)) is None:
            return examples
        score_T = left_out(found[1], view.data.items, examples.items, view.catalogue.n_items)
        return replace(examples, offset=score_T + view.params[PUBLIC + "shift"])

    def disclosures(self) -> tuple[Disclosure, ...]:
        what = "mean and mean square of the spectral scores of the user's items and of all others"
        return (*self._inner.disclosures(), Disclosure("report", f"{self.name}/moments", what))


def left_out(tables: Fields, lists: Ragged, wanted: Ragged, n_items: int) -> Tensor:
    """The spectral score of each wanted item, by the client's list without that item, [T]."""
    return scored(tables, vectors(tables, lists), wanted) - itself(tables, lists, wanted, n_items)


def vectors(tables: Fields, lists: Ragged) -> Tensor:
    return Spectral(tables["items"].shape[2]).listed(tables, History.of(lists)) * tables["filter"]


def scored(tables: Fields, u_CD: Tensor, wanted: Ragged) -> Tensor:
    """[T], in the same bits whoever else is here, as a matrix product would not be."""
    items_ID, owner_T = tables["items"][0], wanted.owner
    score_T = u_CD.new_empty(len(owner_T))
    for at in range(0, len(owner_T), AT_ONCE):
        part = slice(at, at + AT_ONCE)
        score_T[part] = (u_CD[owner_T[part]] * items_ID[wanted.values[part]]).sum(1)
    return score_T


def itself(tables: Fields, lists: Ragged, wanted: Ragged, n_items: int) -> Tensor:
    """What a wanted item adds to its own score, as often as it is on the client's list, [T]."""
    own, count_S = distinct(lists, n_items)
    copies_I = tables["weight"][0] * (tables["items"][0] ** 2 * tables["filter"][0]).sum(1)
    if not len(own.values):
        return copies_I.new_zeros(len(wanted.values))
    key_S, key_T = own.owner * n_items + own.values, wanted.owner * n_items + wanted.values
    place_T = torch.searchsorted(key_S, key_T).clamp(max=len(key_S) - 1)
    return copies_I[wanted.values] * torch.where(key_S[place_T] == key_T, count_S[place_T], 0)


def moments(tables: Fields, lists: Ragged, n_items: int) -> Tensor:
    """Whether a client counts; mean and mean square of scores, of own items left out, then of all others, [C, 5]."""
    (own, _), u_CD = distinct(lists, n_items), vectors(tables, lists)
    whole_T, items_ID = scored(tables, u_CD, own), tables["items"][0].double()
    left_T = whole_T - itself(tables, lists, own, n_items)
    u_CD = (
        u_CD.double()
    )  # so exact that products have the same bits after rounding, whoever else is here
    all_C2 = torch.stack(
        [u_CD @ items_ID.sum(0), ((u_CD @ (items_ID.mT @ items_ID)) * u_CD).sum(1)], 1
    )
    summed = lambda s_T: all_C2.new_zeros(len(lists), 2).index_add(
        0, own.owner, torch.stack([s_T, s_T**2], 1).double()
    )
    many_C1 = own.lengths[:, None].double()
    own_C2 = summed(left_T) / many_C1.clamp(min=1)
    rest_C2 = (all_C2 - summed(whole_T)) / (n_items - many_C1).clamp(min=1)
    there_C1 = ((many_C1 > 0) & (many_C1 < n_items)).double()
    return (torch.cat([torch.ones_like(many_C1), own_C2, rest_C2], 1) * there_C1).to(
        tables["items"]
    )


def log_odds(sum_M: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and shift of the log-odds of an own item, of two normal distributions of the same width."""
    mean_2, square_2 = (sum_M[1:] / sum_M[0].clamp(min=1)).view(2, 2).unbind(1)
    spread = (square_2 - mean_2**2).mean().clamp(min=1e-12)
    slope = (mean_2[0] - mean_2[1]).clamp(min=0) / spread
    return slope, -slope * mean_2.mean()

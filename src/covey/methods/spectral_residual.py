"""Trains a gradient method as a correction of the spectral score.

The first rounds compute the sums, the filter and the tables of `SubspaceIteration`. One more
exchange finds the unit of the score: the slope of the log-odds by which a linear discriminant
separates a user's own items from the others. Then the spectral score is the offset of every example
and ranking. In training, the score of an own item leaves that item out of the list: otherwise the
items that the user has score far above those that the user will choose next.
Shape suffixes: T = examples of all clients together, D = directions, M = moments.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.contract.examples import Examples
from covey.core import Answers, CoveyError, FieldDict, Fields, Ragged, Rng, Sent, Total, Upload
from covey.core.checks import positive
from covey.mechanism import ClientView, Disclosure, History, Mechanism, Model, Reads, ServerView
from covey.models.spectral import Spectral
from covey.objectives.pairs import Bce, Bpr

from .spectral import TABLES, SubspaceIteration, distinct

PUBLIC = "base/"  # the prefix of the tables' names when they are published
AT_ONCE = 1 << 15  # examples
STRENGTHS = (0.3, 0.6, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


@dataclass(frozen=True)
class SpectralResidual(Mechanism):
    """Adds the spectral score to the logits in training and wherever a client ranks."""

    name: str = "spectral residual"
    exchanges: frozenset[str] = frozenset({"report"})
    reads_reports: Reads = "total"
    rank: int = 128
    sums: int = 4
    choose: tuple[float, ...] = STRENGTHS  # strengths of the filter to choose from; (): 1
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
        """The number of exchanges: the sums, the choice and the moments."""
        return self.sums + bool(self.choose) + 1

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        if not isinstance(view.objective, Bce | Bpr):
            wrong = f"{self.name!r} is an offset of single logits: use covey.objectives:Bce or Bpr"
            raise CoveyError(wrong)
        model = Spectral(self.rank)
        model.check(view.catalogue.n_items)
        rng = Rng.server(view.seed, 0, "public")  # as the spectral method, to find just the same
        tables: FieldDict = dict(model.public(view.catalogue.n_items, rng))
        tables = {k: v.to(view.public["items"]) for k, v in tables.items()}
        return {**tables, "heard": torch.tensor(0)}

    def select_reporters(self, view: ServerView, everyone: Tensor) -> Tensor | None:
        """All clients, whichever of them train in these rounds."""
        return everyone if self._due(view) else everyone[:0]

    def _due(self, view: ServerView) -> bool:
        return self.weight > 0 and int(view.state["heard"]) < self._exchanges

    def _inner_view(self, view: ServerView) -> ServerView:
        """The view of subspace iteration, in which rounds without reports do not count."""
        tables: Fields = {k: view.state[k] for k in TABLES}
        round = replace(view.round, number=int(view.state["heard"]) + 1)
        return replace(view, public=tables, round=round)

    def send(self, view: ServerView) -> Sent:
        if not self._due(view):
            return Sent()
        if view.step != "report":
            return Sent({"wait": torch.tensor(1)})  # there is nothing to correct yet
        tables = {k: view.state[k] for k in TABLES}
        if int(view.state["heard"]) == self._exchanges - 1:
            return Sent({**tables, "moments": torch.tensor(1)})
        return Sent({**tables, **self._inner.send(self._inner_view(view)).shared})

    def report(self, view: ClientView) -> FieldDict:
        tables: Fields = {k: view.received.shared[k][None] for k in TABLES}
        if "moments" in view.received.shared:
            return {"moments": moments(tables, view.data.items, view.catalogue.n_items)}
        return self._inner.report(replace(view, params=tables, model=Spectral(self.rank)))

    def receive_reports(self, view: ServerView, reports: Answers) -> tuple[FieldDict, Fields]:
        assert isinstance(reports, Total)
        exchanges: FieldDict = {"heard": view.state["heard"] + 1}
        if "moments" not in reports.extra[self.name]:
            state, tables = self._inner.receive_reports(self._inner_view(view), reports)
            return {**view.state, **state, **tables, **exchanges}, {}
        unit, shift = log_odds(reports.extra[self.name]["moments"].double())
        assert isinstance(view.objective, Bce | Bpr)
        prior, filter_D = -math.log(view.objective.negatives), view.state["filter"]
        public = {PUBLIC + k: view.state[k] for k in TABLES}
        public[PUBLIC + "filter"] = filter_D * (self.weight * unit).to(filter_D)
        # `prior` is the log-odds of a positive among its negatives.
        public[PUBLIC + "shift"] = (self.weight * (shift + prior)).to(filter_D)
        metrics = {k: v for k, v in view.state.items() if k.startswith("tell/")}
        return {**metrics, **exchanges, "tell/unit": unit}, public

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
    """The spectral score of each wanted item, from the client's list without that item, [T]."""
    own_T = own_share(tables, lists, wanted, n_items)
    return scored(tables, vectors(tables, lists), wanted) - own_T


def vectors(tables: Fields, lists: Ragged) -> Tensor:
    """The users' filtered vectors, [C, D]."""
    return Spectral(tables["items"].shape[2]).listed(tables, History.of(lists)) * tables["filter"]


def scored(tables: Fields, u_CD: Tensor, wanted: Ragged) -> Tensor:
    """The scores of the wanted items, [T]; unlike a matrix product the same bits in any cohort."""
    items_ID, owner_T = tables["items"][0], wanted.owner
    score_T = u_CD.new_empty(len(owner_T))
    for at in range(0, len(owner_T), AT_ONCE):
        part = slice(at, at + AT_ONCE)
        score_T[part] = (u_CD[owner_T[part]] * items_ID[wanted.values[part]]).sum(1)
    return score_T


def own_share(tables: Fields, lists: Ragged, wanted: Ragged, n_items: int) -> Tensor:
    """What the occurrences of a wanted item on the client's list add to its score, [T]."""
    own, count_S = distinct(lists, n_items)
    copies_I = tables["weight"][0] * (tables["items"][0] ** 2 * tables["filter"][0]).sum(1)
    if not len(own.values):
        return copies_I.new_zeros(len(wanted.values))
    key_S, key_T = own.owner * n_items + own.values, wanted.owner * n_items + wanted.values
    place_T = torch.searchsorted(key_S, key_T).clamp(max=len(key_S) - 1)
    return copies_I[wanted.values] * torch.where(key_S[place_T] == key_T, count_S[place_T], 0)


def moments(tables: Fields, lists: Ragged, n_items: int) -> Tensor:
    """Returns whether a client counts, and the moments of its items' scores, [C, 5].

    These are mean and mean square of the scores of own items, each left out of the list, and of all
    other items. A client counts if it has own and other items.
    """
    (own, _), u_CD = distinct(lists, n_items), vectors(tables, lists)
    whole_T, items_ID = scored(tables, u_CD, own), tables["items"][0].double()
    left_T = whole_T - own_share(tables, lists, own, n_items)
    u_CD = u_CD.double()  # exact enough for the same bits in any cohort after rounding
    square_C = ((u_CD @ (items_ID.mT @ items_ID)) * u_CD).sum(1)
    all_C2 = torch.stack([u_CD @ items_ID.sum(0), square_C], 1)

    def summed(s_T: Tensor) -> Tensor:
        powers_T2 = torch.stack([s_T, s_T**2], 1).double()
        return all_C2.new_zeros(len(lists), 2).index_add(0, own.owner, powers_T2)

    many_C1 = own.lengths[:, None].double()
    own_C2 = summed(left_T) / many_C1.clamp(min=1)
    rest_C2 = (all_C2 - summed(whole_T)) / (n_items - many_C1).clamp(min=1)
    counts_C1 = ((many_C1 > 0) & (many_C1 < n_items)).double()
    moments_C5 = torch.cat([torch.ones_like(many_C1), own_C2, rest_C2], 1) * counts_C1
    return moments_C5.to(tables["items"])


def log_odds(sum_M: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and shift of the log-odds of an own item, for two normal distributions of one width."""
    mean_2, square_2 = (sum_M[1:] / sum_M[0].clamp(min=1)).view(2, 2).unbind(1)
    spread = (square_2 - mean_2**2).mean().clamp(min=1e-12)
    slope = (mean_2[0] - mean_2[1]).clamp(min=0) / spread
    return slope, -slope * mean_2.mean()

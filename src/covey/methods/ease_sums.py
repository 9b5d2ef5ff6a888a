"""EASE (Steck, Embarrassingly Shallow Autoencoders for Sparse Data, WWW 2019) by sums over clients.

All that EASE needs is the Gram matrix X'X, a sum over users: in each round client u adds some of
its columns, x_u x_u[tile]', and after the last tile the server inverts the matrix. The sum is kept,
so clients can join, change or leave. Shape suffixes: T = items of all clients together, W = items
of a tile, M = pairs of a tile and a client in it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.core import Answers, CoveyError, FieldDict, Fields, Ragged, Rows, Sent, Total, Upload
from covey.core.checks import positive
from covey.evaluate.ranking import distinct, merged, nothing
from covey.mechanism import ClientView, Disclosure, Mechanism, Reads, ServerView
from covey.models.ease import ItemWeights

JOIN, UPDATE, LEAVE = 0, 1, 2  # what a report of a change means


@dataclass(frozen=True)
class GramTiles(Mechanism):
    """Sums one tile of columns of the Gram matrix in each round."""

    name: str = "gram"
    exchanges: frozenset[str] = frozenset({"report"})
    reads_reports: Reads = "total"
    whole_table: bool = True  # for the memory plan: a report has rows of a whole tile
    tiles: int = 4
    weight: float = 300.0  # lambda

    def __post_init__(self) -> None:
        positive("gram", tiles=self.tiles, weight=self.weight)

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        n_items, device = view.catalogue.n_items, view.public["items"].device
        if not isinstance(view.model, ItemWeights):
            wrong = f"{self.name!r} needs covey.models.ease:ItemWeights; set [model] use to that"
            raise CoveyError(wrong)
        if self.tiles > n_items:
            raise CoveyError(f"gram: tiles = {self.tiles} for {n_items} items; use fewer tiles")
        return {"gram": torch.zeros(n_items, n_items, dtype=torch.float64, device=device)}

    def send(self, view: ServerView) -> Sent:
        if view.step != "report":
            return Sent()
        span = span_of(view.round.number, self.tiles, view.catalogue.n_items)
        return Sent({"tile": torch.tensor(span)})

    def report(self, view: ClientView) -> FieldDict:
        start, stop = view.received.shared["tile"].tolist()
        change = int(view.received.shared.get("change", torch.tensor(JOIN)))
        items, dtype = distinct(view.data.items), view.params["items"].dtype
        none = nothing(len(items), items.values.device)
        after, before = (none, items) if change == LEAVE else (items, none)
        if change == UPDATE:
            before = distinct(view.data.avoid)  # the list as it was
        return {"rows": difference(after, before, start, stop, view.catalogue.n_items, dtype)}

    def receive_reports(self, view: ServerView, reports: Answers) -> tuple[FieldDict, Fields]:
        assert isinstance(reports, Total)
        start, stop = span_of(view.round.number, self.tiles, view.catalogue.n_items)
        gram_II, rows_IW = view.state["gram"].clone(), reports.extra[self.name]["rows"]
        gram_II[:, start:stop] = rows_IW.double()  # a later pass replaces the earlier one
        number, ids_C = view.round.number, reports.ids_C.sort().values  # in this round's tile
        tile, pair_M2 = (number - 1) % self.tiles, view.state.get("in", ids_C.new_zeros(0, 2))
        now_C2 = torch.stack([torch.full_like(ids_C, tile), ids_C], 1)
        pair_M2 = torch.cat([pair_M2[pair_M2[:, 0] != tile], now_C2])
        state: FieldDict = {"gram": gram_II, **listed(pair_M2, min(number, self.tiles))}
        if view.round.number < self.tiles:
            return state, {}
        return state, {"weight": self.solved(gram_II).to(view.public["weight"])}

    def solved(self, gram_II: Tensor) -> Tensor:
        """B = I - P diag(1 / diag(P)) with P = (X'X + lambda I)^-1."""
        damped_II = (gram_II + gram_II.mT) / 2  # the same if all tiles have the same clients
        damped_II.diagonal().add_(self.weight)
        lower_II, failed = torch.linalg.cholesky_ex(damped_II)
        while bool(failed):  # tiles of different clients: damp until it is a Gram matrix again
            damped_II.diagonal().mul_(2)
            lower_II, failed = torch.linalg.cholesky_ex(damped_II)
        p_II = torch.cholesky_inverse(lower_II)
        b_II = p_II / -p_II.diagonal()
        return b_II.fill_diagonal_(0).contiguous()

    def disclosures(self) -> tuple[Disclosure, ...]:
        what = "which of the user's items go together"
        clear = "in clear it is the list, in a secure sum it is not"
        return (Disclosure("report", f"{self.name}/rows", f"{what}; {clear}"),)


def span_of(number: int, tiles: int, n_items: int) -> tuple[int, int]:
    """The columns that a round sums."""
    tile = (number - 1) % tiles
    return tile * n_items // tiles, (tile + 1) * n_items // tiles


def in_tile(pair_M2: Tensor, tile: int) -> Tensor:
    """The clients that are in a tile."""
    return pair_M2[pair_M2[:, 0] == tile, 1]


def whole(pair_M2: Tensor, tiles: int) -> Tensor:
    """The clients that are in all of so many tiles, ascending."""
    ids_N, count_N = pair_M2[:, 1].unique(return_counts=True)
    return ids_N[count_N == tiles]


def partly(pair_M2: Tensor, tiles: int) -> Tensor:
    """The clients that are in fewer than so many tiles, ascending."""
    ids_N, count_N = pair_M2[:, 1].unique(return_counts=True)
    return ids_N[count_N < tiles]


def listed(pair_M2: Tensor, tiles: int) -> FieldDict:
    """The state of who is in which tile, with the number of clients that are not in all tiles."""
    return {"in": pair_M2, "tell/in some tiles only": torch.tensor(len(partly(pair_M2, tiles)))}


def difference(
    after: Ragged, before: Ragged, start: int, stop: int, n_items: int, dtype: torch.dtype
) -> Rows:
    """x x' of the lists `after` minus that of `before` (sorted, distinct), from column `start`."""
    rows = distinct(merged(after, before))
    value_TW = torch.zeros(len(rows.values), stop - start, dtype=dtype, device=rows.values.device)
    for sign, lists in ((1, after), (-1, before)):
        if len(lists.values):
            x_CI = value_TW.new_zeros(len(lists), n_items)
            x_CI[lists.owner, lists.values] = 1
            value_TW += sign * x_CI[rows.owner, rows.values, None] * x_CI[:, start:stop][rows.owner]
    return Rows(rows, value_TW, n_items)

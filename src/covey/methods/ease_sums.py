"""EASE (H. Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019) from sums over clients.

All that EASE needs of the data is the Gram matrix X'X, a sum over users. A round sums some of its
columns: client u adds x_u x_u[tile]'. When the last tile is there, the server inverts. The sum is
kept, so a client can join, change its list or leave: it sends its part, the difference, or minus its part.

Shape suffixes: T = items of all clients together, W = items of a tile, M = pairs of a tile and a client in it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.contract.ledger import Disclosure
from covey.contract.mechanism import Mechanism
from covey.contract.views import ClientView, Reads, ServerView
from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.core.messages import Sent, Total, Upload
from covey.core.ragged import FieldDict, Fields, Ragged, Rows
from covey.evaluate.ranking import distinct, merged, nothing
from covey.models.ease import ItemWeights

JOIN, UPDATE, LEAVE = 0, 1, 2  # what a report of a change means


@dataclass(frozen=True)
class GramTiles(Mechanism):
    name: str = "gram"
    exchanges: frozenset[str] = frozenset({"report"})
    reads_reports: Reads = "total"
    whole_table: bool = True  # for the memory plan: a client's part is rows of a whole tile
    tiles: int = 4
    weight: float = 300.0  # lambda

    def __post_init__(self) -> None:
        positive("gram", tiles=self.tiles, weight=self.weight)

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        n_items = view.catalogue.n_items
        if not isinstance(view.model, ItemWeights):
            raise CoveyError(
                f"{self.name!r} fits covey.models.ease:ItemWeights alone; set [model] use to that"
            )
        if self.tiles > n_items:
            raise CoveyError(
                f"gram: tiles = {self.tiles} but there are {n_items} items; cut it into fewer"
            )
        return {
            "gram": torch.zeros(
                n_items, n_items, dtype=torch.float64, device=view.public["items"].device
            )
        }

    def send(self, view: ServerView) -> Sent:
        if view.step != "report":
            return Sent()
        return Sent(
            {"tile": torch.tensor(span_of(view.round.number, self.tiles, view.catalogue.n_items))}
        )

    def report(self, view: ClientView) -> FieldDict:
        start, stop = view.received.shared["tile"].tolist()
        change = int(view.received.shared.get("change", torch.tensor(JOIN)))
        items, none = (
            distinct(view.data.items),
            nothing(len(view.data.items), view.data.items.values.device),
        )
        after, before = (none, items) if change == LEAVE else (items, none)
        if change == UPDATE:
            before = distinct(view.data.avoid)  # the list as it was
        return {
            "rows": difference(
                after, before, start, stop, view.catalogue.n_items, view.params["items"].dtype
            )
        }

    def receive_reports(
        self, view: ServerView, reports: Upload | Total
    ) -> tuple[FieldDict, Fields]:
        assert isinstance(reports, Total)
        start, stop = span_of(view.round.number, self.tiles, view.catalogue.n_items)
        gram_II = view.state["gram"].clone()
        gram_II[:, start:stop] = reports.extra[self.name][
            "rows"
        ].double()  # a later pass replaces the earlier
        memory: FieldDict = {"gram": gram_II, **self._heard(view, reports.ids_C.sort().values)}
        if view.round.number < self.tiles:
            return memory, {}
        return memory, {"weight": self.solved(gram_II).to(view.public["weight"])}

    def _heard(self, view: ServerView, ids_C: Tensor) -> FieldDict:
        """Those heard now are in this round's tile, and nobody else; the other tiles are as they were."""
        tile, pair_M2 = (
            (view.round.number - 1) % self.tiles,
            view.state.get("in", ids_C.new_zeros(0, 2)),
        )
        now_C2 = torch.stack([torch.full_like(ids_C, tile), ids_C], 1)
        return listed(
            torch.cat([pair_M2[pair_M2[:, 0] != tile], now_C2]), min(view.round.number, self.tiles)
        )

    def solved(self, gram_II: Tensor) -> Tensor:
        """B = I - P diag(1 / diag(P)) with P = (X'X + lambda I)^-1."""
        damped_II = (gram_II + gram_II.mT) / 2  # as it is, where the same clients are in all tiles
        damped_II.diagonal().add_(self.weight)
        lower_II, failed = torch.linalg.cholesky_ex(damped_II)
        while bool(failed):  # tiles of different clients: damp until it is a Gram matrix again
            damped_II.diagonal().mul_(2)
            lower_II, failed = torch.linalg.cholesky_ex(damped_II)
        p_II = torch.cholesky_inverse(lower_II)
        b_II = p_II / -p_II.diagonal()
        return b_II.fill_diagonal_(0).contiguous()

    def disclosures(self) -> tuple[Disclosure, ...]:
        what = "which of the user's items go together; in clear it is the list, in a secure sum it is not"
        return (Disclosure("report", f"{self.name}/rows", what),)


def span_of(number: int, tiles: int, n_items: int) -> tuple[int, int]:
    """The columns that a round sums."""
    tile = (number - 1) % tiles
    return tile * n_items // tiles, (tile + 1) * n_items // tiles


def in_tile(pair_M2: Tensor, tile: int) -> Tensor:
    return pair_M2[pair_M2[:, 0] == tile, 1]


def whole(pair_M2: Tensor, tiles: int) -> Tensor:
    """Clients that are in so many tiles, ascending."""
    ids_N, count_N = pair_M2[:, 1].unique(return_counts=True)
    return ids_N[count_N == tiles]


def partly(pair_M2: Tensor, tiles: int) -> Tensor:
    """Clients that are in fewer, ascending."""
    ids_N, count_N = pair_M2[:, 1].unique(return_counts=True)
    return ids_N[count_N < tiles]


def listed(pair_M2: Tensor, tiles: int) -> FieldDict:
    """Who is in which tile, and how many are in some of them and not in all."""
    return {"in": pair_M2, "tell/in some tiles only": torch.tensor(len(partly(pair_M2, tiles)))}


def difference(
    after: Ragged, before: Ragged, start: int, stop: int, n_items: int, dtype: torch.dtype
) -> Rows:
    """Columns start to stop - 1 of x x' of one list less those of the other, in the rows of both lists' items."""
    rows = distinct(merged(after, before))
    value_TW = torch.zeros(len(rows.values), stop - start, dtype=dtype, device=rows.values.device)
    for sign, part in ((1, after), (-1, before)):
        if len(part.values):
            x_CI = _marked(part, n_items, dtype)
            value_TW += sign * x_CI[rows.owner, rows.values, None] * x_CI[:, start:stop][rows.owner]
    return Rows(rows, value_TW, n_items)


def _marked(lists: Ragged, n_items: int, dtype: torch.dtype) -> Tensor:
    """1 where a client has an item, [C, I]."""
    x_CI = torch.zeros(len(lists), n_items, dtype=dtype, device=lists.values.device)
    x_CI[lists.owner, lists.values] = 1
    return x_CI

"""EASE from sums: it is pooled EASE, and whoever leaves is forgotten."""

from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

import covey
from covey.contract.fleet import Fleet, Request
from covey.contract.model import History
from covey.contract.views import TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Round, Total, Upload
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.client.program import LocalData, Program
from covey.engine.client.ranking import HeldOut
from covey.engine.fleet.meter import Meter
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.method import Method
from covey.engine.rounds import Server, enrol, run_round, start
from covey.engine.secure.fleet import SecureFleet
from covey.engine.secure.settings import SINGLES, FleetConfig
from covey.evaluate.ranking import distinct
from covey.inference.membership import join, leave, members, update
from covey.methods.ease_sums import GramTiles, difference, span_of
from covey.models.ease import ItemWeights
from covey.objectives.pairs import NoObjective
from covey.pooled.ease import Ease
from covey.testing import Conformance

LISTS = Ragged.of(
    [[0, 1, 2], [1, 3], [], [4, 0, 4], [2, 3, 1, 5], [0, 1]]
)  # client 3 has an item twice
ITEMS = 7  # nobody has item 6


def method(tiles: int = 3, weight: float = 2.0, n_items: int = ITEMS) -> Method:
    return Method(
        ItemWeights(),
        NoObjective(),
        Catalogue(n_items),
        None,
        (GramTiles(tiles=tiles, weight=weight),),
    )


def fleet_of(ours: Method, lists: Ragged, before: Ragged | None = None) -> SimulatedFleet:
    program = Program(ours.model, ours.objective, ours.catalogue, None, ours.mechanisms)
    held = HeldOut(lists, lists)
    return SimulatedFleet(
        program, LocalData(TrainingData(lists, before or distinct(lists)), held), hides=SINGLES
    )


def summed(ours: Method, fleet: Fleet, ids: Tensor | None = None) -> Server:
    server = start(ours)
    server = Server({k: v.double() for k, v in server.public.items()})
    server = enrol(server, fleet, ours)
    for number in range(1, ours.mechanisms[0].tiles + 1):  # type: ignore[attr-defined]
        server, _ = run_round(
            server, fleet, ours, Round(number, fleet.ids_N if ids is None else ids)
        )
    return server


class TestEaseSums(Conformance):
    rounds = 4
    users = cohort = 30

    def method(self, catalogue: Catalogue) -> Method:
        return Method(
            ItemWeights(), NoObjective(), catalogue, None, (GramTiles(tiles=2, weight=5.0),)
        )


@pytest.mark.parametrize("tiles", [1, 3, 7])
def test_tiles_give_pooled_ease(tiles: int) -> None:
    ours = method(tiles)
    server = summed(ours, fleet_of(ours, LISTS))
    pooled = Ease(2.0).fit(LISTS, ITEMS)
    torch.testing.assert_close(server.public["weight"].float(), pooled.weight_II, rtol=0, atol=1e-6)


def test_a_gram_matrix_by_hand() -> None:
    """Two clients with items 0 and 1, one of them with 2: counts 2, 2, 1."""
    ours = method(1, 1.0, 3)
    gram_II = summed(ours, fleet_of(ours, Ragged.of([[0, 1], [1, 0, 2]]))).state["gram"]["gram"]
    assert gram_II.tolist() == [[2, 2, 1], [2, 2, 1], [1, 1, 1]]


def test_two_items_by_hand() -> None:
    """X'X + I = [[2, 1], [1, 2]], whose inverse is [[2, -1], [-1, 2]] / 3: the weight is 1/2."""
    weight_II = GramTiles(weight=1.0).solved(torch.ones(2, 2, dtype=torch.float64))
    torch.testing.assert_close(weight_II, torch.tensor([[0, 0.5], [0.5, 0]], dtype=torch.float64))


def test_scores_by_hand() -> None:
    weight_II = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 4.0], [5.0, 6.0, 0.0]])
    params = {"items": torch.arange(3.0)[None, :, None], "weight": weight_II[None]}
    u_CI = ItemWeights().user(
        params, History.of(Ragged.of([[0, 1, 0], [], [2]])), Rng.of(0, 0, torch.arange(3)), False
    )
    assert u_CI.tolist() == [[3, 1, 6], [0, 0, 0], [5, 6, 0]]
    assert ItemWeights().score(params, u_CI, params["items"][:, [2, 0]]).tolist() == [
        [6, 3],
        [0, 0],
        [0, 5],
    ]


def test_columns_are_all_there_once() -> None:
    spans = [span_of(number, 4, 10) for number in range(1, 9)]
    assert spans[:4] == [(0, 2), (2, 5), (5, 7), (7, 10)] and spans[4:] == spans[:4]


def test_who_left_is_forgotten() -> None:
    ours = method()
    fleet = fleet_of(ours, LISTS)
    before = fleet.meter.up
    server = summed(ours, fleet)
    sent, gone = fleet.meter.up, torch.tensor([3, 4])
    after = leave(server, fleet, ours, 4, gone)
    assert fleet.meter.up - sent > 0 and sent > before  # the farewell is in the ledger
    without = summed(ours, fleet, torch.tensor([0, 1, 2, 5]))
    torch.testing.assert_close(after.public["weight"], without.public["weight"], rtol=0, atol=1e-12)
    assert [ids.tolist() for ids in members(after, ours)] == [[0, 1, 2, 5], []]
    assert torch.equal(
        server.public["weight"], summed(ours, fleet).public["weight"]
    )  # the old record stands


@dataclass
class Losing:
    """Devices of which some give no answer in some rounds."""

    devices: SimulatedFleet
    lost: dict[int, list[int]]  # by round
    asked: list[tuple[int, list[int]]] = field(default_factory=list)
    hides: frozenset[str] = SINGLES

    @property
    def meter(self) -> Meter:
        return self.devices.meter

    @property
    def ids_N(self) -> Tensor:
        return self.devices.ids_N

    def ask(self, request: Request) -> Upload | Total:
        self.asked.append((request.round, request.ids_C.tolist()))
        stay = ~torch.isin(request.ids_C, torch.tensor(self.lost[request.round]))
        return self.devices.ask(replace(request, ids_C=request.ids_C[stay]))


def test_who_dropped_out_half_way_can_come_and_go() -> None:
    """Clients 0 and 5 miss a tile of the sums, 3 one when it leaves: requests ask for these."""
    ours = method()
    fleet = Losing(fleet_of(ours, LISTS), {n: {2: [0, 5], 5: [3]}.get(n, []) for n in range(1, 20)})
    server = summed(ours, fleet)
    assert [ids.tolist() for ids in members(server, ours)] == [[1, 2, 3, 4], [0, 5]]
    assert float(server.state["gram"]["tell/in some tiles only"]) == 2
    everybody = join(server, fleet, ours, 4, torch.tensor([0, 5]))
    assert fleet.asked[-1] == (5, [0, 5]) and len(fleet.asked) == 4
    torch.testing.assert_close(
        everybody.public["weight"], summed(ours, fleet_of(ours, LISTS)).public["weight"]
    )

    server = leave(server, fleet, ours, 4, torch.tensor([0, 3, 5]))
    assert [ids.tolist() for ids in members(server, ours)] == [[1, 2, 4], [3]]
    server = leave(server, fleet, ours, 7, torch.tensor([3]))
    assert (
        fleet.asked[-1] == (8, [3]) and fleet.asked[-2][0] == 6
    )  # the tile that it is still in, and no other
    without = summed(ours, fleet_of(ours, LISTS), torch.tensor([1, 2, 4]))
    torch.testing.assert_close(
        server.public["weight"], without.public["weight"], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("masks", [False, True])
def test_who_left_is_forgotten_under_secure_sums(masks: bool) -> None:
    """Twelve clients, some of which drop out of a tile; three leave, one on its second attempt."""
    ours, lists = method(), Ragged.of([[n % 7, (n + 1) % 7, (3 * n) % 5] for n in range(12)])
    devices = Losing(
        fleet_of(ours, lists), {n: {2: [0, 5], 5: [7]}.get(n, []) for n in range(1, 20)}
    )
    fleet = SecureFleet(devices, FleetConfig(secure=True, neighbours=8, holders=10, masks=masks))
    server = summed(ours, fleet)
    assert members(server, ours)[1].tolist() == [0, 5]
    server = leave(server, fleet, ours, 4, torch.tensor([0, 5, 6, 7, 8, 9]))
    assert members(server, ours)[1].tolist() == [7]
    server = leave(server, fleet, ours, 7, torch.tensor([7, 10, 11]))
    assert [ids.tolist() for ids in members(server, ours)] == [
        [1, 2, 3, 4],
        [10, 11],
    ]  # 10 and 11: two are too few
    server = join(server, fleet, ours, 10, torch.tensor([0, 5, 6, 10, 11]))
    without = summed(ours, fleet_of(ours, lists), torch.tensor([0, 1, 2, 3, 4, 5, 6, 10, 11]))
    torch.testing.assert_close(server.public["weight"], without.public["weight"], rtol=0, atol=1e-8)


def test_nobody_leaves_a_secure_sum_alone() -> None:
    """The sum of one is its part: it is not opened, and the client is still there."""
    ours = method()
    fleet = SecureFleet(fleet_of(ours, LISTS), FleetConfig(secure=True, neighbours=2, holders=4))
    server = summed(ours, fleet)
    with pytest.raises(CoveyError, match="needs three"):
        leave(server, fleet, ours, 4, torch.tensor([3]))


def test_a_list_is_not_changed_by_halves() -> None:
    ours = method()
    fleet = Losing(
        fleet_of(ours, LISTS), {number: [4] if number == 5 else [] for number in range(1, 10)}
    )
    server = summed(ours, fleet)
    with pytest.raises(CoveyError, match="leave, and join again"):
        update(server, fleet, ours, 4, torch.tensor([3, 4]))
    server = leave(server, fleet, ours, 4, torch.tensor([3, 4]))
    with pytest.raises(CoveyError, match="client 4 is not in the sum, or not in all of it"):
        update(server, fleet, ours, 7, torch.tensor([4]))


def test_who_joins_is_there() -> None:
    ours = method()
    fleet = fleet_of(ours, LISTS)
    late = join(
        summed(ours, fleet, torch.tensor([0, 1, 2])), fleet, ours, 4, torch.tensor([3, 4, 5])
    )
    torch.testing.assert_close(
        late.public["weight"], summed(ours, fleet).public["weight"], rtol=0, atol=1e-12
    )


def test_a_changed_list_sends_the_difference() -> None:
    ours = method()
    new = Ragged.of([[0, 1, 6], [1, 3], [5], [], [2, 3, 1, 5], [0, 1]])
    server = summed(ours, fleet_of(ours, LISTS))
    server = update(server, fleet_of(ours, new, distinct(LISTS)), ours, 4, torch.arange(6))
    torch.testing.assert_close(
        server.public["weight"], summed(ours, fleet_of(ours, new)).public["weight"]
    )
    same = difference(distinct(LISTS), distinct(LISTS), 0, ITEMS, ITEMS, torch.float64)
    assert not same.values.any()


def test_nobody_counts_twice() -> None:
    ours = method()
    fleet = fleet_of(ours, LISTS)
    server = summed(ours, fleet, torch.tensor([0, 1, 2]))
    for act, ids, why in (
        (join, [1], "already"),
        (leave, [4], "not in the sum"),
        (join, [4, 4], "twice"),
    ):
        with pytest.raises(CoveyError, match=why):
            act(server, fleet, ours, 4, torch.tensor(ids))
    other = replace(ours, mechanisms=())
    with pytest.raises(CoveyError, match="run the sums again"):
        leave(server, fleet, other, 4, torch.tensor([1]))


def test_more_tiles_than_items_are_refused() -> None:
    ours = method(tiles=8)
    with pytest.raises(CoveyError, match="fewer"):
        summed(ours, fleet_of(ours, LISTS))


def test_a_new_user_is_served_from_its_own_items() -> None:
    fitted = covey.fit("ease-sums", data={"users": 60, "items": 40, "mean_items": 8}, rounds=4)
    own = [fitted.items[i] for i in (3, 5)]
    scores = fitted.scorer.newcomer(Ragged.of([[3, 5]]), 0)
    weight_II = fitted.scorer.server.public["weight"]  # type: ignore[attr-defined]
    torch.testing.assert_close(scores[0], weight_II[3] + weight_II[5])
    assert own


def test_shown_what_pooled_ease_is_shown_it_ranks_the_same() -> None:
    """By default the list on the device includes the validation items in the test."""
    small = {"users": 200, "items": 80, "mean_items": 12}

    def ndcg(method: str, *set: str) -> float:
        fitted = covey.fit(method, preset="ratio-full", data=small, set=set)
        return float(fitted.evaluate()["test"]["ndcg@20"])

    pooled = ndcg("ease", "pooled.weight=300.0")
    assert ndcg("ease-sums", 'evaluate.history="train"') == pytest.approx(pooled, abs=1e-6)
    assert ndcg("ease-sums") != pytest.approx(pooled, abs=1e-3)
    with pytest.raises(CoveyError, match=r"evaluate\.history"):
        ndcg("ease-sums", 'evaluate.history="all"')

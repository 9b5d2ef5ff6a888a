"""Subspace iteration by sums is the power method on the pooled, normalised matrix."""

from typing import Any

import pytest
import torch
from torch import Tensor

import covey
from covey.contract.fleet import Request
from covey.contract.model import History
from covey.contract.views import TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Download, Round, Sent, Total
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.data.split import SplitConfig, pool, split
from covey.data.synthetic import Synthetic, generate
from covey.engine.client.program import LocalData, Program
from covey.engine.client.ranking import HeldOut
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.method import Method
from covey.engine.rounds import Server, enrol, run_round, start
from covey.engine.secure.settings import SINGLES
from covey.methods.filters import leading, low_rank_ease, response
from covey.methods.spectral import SubspaceIteration, distinct
from covey.models.spectral import Spectral
from covey.objectives.pairs import NoObjective
from covey.testing import Conformance

LISTS = Ragged.of([[0, 1, 2], [1, 3], [], [4, 0, 4], [2, 3, 1, 5]])  # client 3 has an item twice
ITEMS = 7  # nobody has item 6


POWERS = {"item_power": 0.5, "user_power": 0.5, "response": "truncated"}


def method(rank: int, n_items: int, **options: Any) -> Method:
    return Method(
        Spectral(rank), NoObjective(), Catalogue(n_items), None, (SubspaceIteration(**options),)
    )


def fleet_of(method: Method, lists: Ragged, held: HeldOut | None = None) -> SimulatedFleet:
    program = Program(method.model, method.objective, method.catalogue, None, method.mechanisms)
    return SimulatedFleet(program, LocalData(TrainingData(lists, lists), held), hides=SINGLES)


def double(server: Server) -> Server:
    return Server({k: v.double() for k, v in server.public.items()}, server.state)


def sums(method: Method, fleet: SimulatedFleet, rounds: int) -> Server:
    server = enrol(double(start(method)), fleet, method)
    for number in range(1, rounds + 1):
        server, _ = run_round(server, fleet, method, Round(number, fleet.ids_N))
    return server


def dense(lists: Ragged, n_items: int) -> Tensor:
    x_NI = torch.zeros(len(lists), n_items, dtype=torch.float64)
    return x_NI.index_put_(
        (lists.owner, lists.values), torch.ones((), dtype=torch.float64), accumulate=True
    )


def projector(basis_ID: Tensor) -> Tensor:
    return basis_ID @ basis_ID.mT


class TestSpectral(Conformance):
    rounds = 3
    users = cohort = (
        60  # items of the very same users tie, and rounding would break the tie: few are alike here
    )

    def method(self, catalogue: Catalogue) -> Method:
        return Method(Spectral(4), NoObjective(), catalogue, None, (SubspaceIteration(),))


class TestChosenFilter(Conformance):
    rounds = 3
    users = cohort = 60

    def method(self, catalogue: Catalogue) -> Method:
        part = SubspaceIteration(sums=2, choose=(0.1, 1.0, 10.0))
        return Method(Spectral(4), NoObjective(), catalogue, None, (part,))


def normalised(x_NI: Tensor, item_power: float, user_power: float) -> tuple[Tensor, Tensor]:
    degree_I, n_N = x_NI.sum(0).clamp(min=1), x_NI.sum(1).clamp(min=1)
    return x_NI / (n_N[:, None] ** user_power * degree_I**item_power), degree_I**item_power


@pytest.mark.parametrize(
    ("item_power", "user_power"), [(0.5, 0.5), (0.25, 0.25), (0.0, 0.5), (0.25, 0.0)]
)
def test_a_round_is_the_power_method_on_the_pooled_matrix(
    item_power: float, user_power: float
) -> None:
    ours = method(3, ITEMS, item_power=item_power, user_power=user_power)
    fleet = fleet_of(ours, LISTS)
    server = sums(ours, fleet, 1)
    a_NI, half_I = normalised(dense(LISTS, ITEMS), item_power, user_power)
    start_ID = start(ours).public["items"].double() * half_I[:, None]
    for number in (2, 3):
        start_ID = torch.linalg.qr(a_NI.mT @ a_NI @ start_ID).Q
        torch.testing.assert_close(server.public["weight"], half_I**-2)
        basis_ID = server.public["items"] / half_I[:, None]
        torch.testing.assert_close(projector(basis_ID), projector(start_ID), rtol=0, atol=1e-12)
        server, _ = run_round(server, fleet, ours, Round(number, fleet.ids_N))


def test_enough_rounds_find_the_leading_eigenvectors() -> None:
    lists = split(generate(Synthetic(users=60, items=24, mean_items=6)), SplitConfig()).train
    ours = method(2, 24, **POWERS)
    server = sums(ours, fleet_of(ours, lists), 200)
    a_NI, half_I = normalised(dense(lists, 24), 0.5, 0.5)
    value_I, vector_II = torch.linalg.eigh(a_NI.mT @ a_NI)
    basis_ID = server.public["items"] / half_I[:, None]
    torch.testing.assert_close(projector(basis_ID), projector(vector_II[:, -2:]), rtol=0, atol=1e-6)
    torch.testing.assert_close(server.state["spectral"]["values"], value_I[-2:].flip(0))


def test_eigenvalues_from_one_sum_where_the_rank_is_enough() -> None:
    g_II = torch.tensor(
        [[2.0, 1, 0, 0], [1, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.float64
    )
    q_ID = torch.eye(4, 3, dtype=torch.float64)
    basis_ID, value_D = leading(q_ID, g_II @ q_ID, 1e-12)
    torch.testing.assert_close(value_D, torch.tensor([3.0, 1, 0], dtype=torch.float64))
    torch.testing.assert_close(basis_ID * value_D @ basis_ID.mT, g_II)


def test_filters_by_hand() -> None:
    value_D = torch.tensor([6.0, 3.0, 3.0, 0.0])  # their mean is 3
    assert response("truncated", value_D, 1.0).tolist() == [1, 1, 1, 0]
    assert response("truncated", value_D, 0.5).tolist() == [1, 1, 0, 0]
    assert response("linear", value_D, 1.0).tolist() == [1, 0.5, 0.5, 0]
    assert response("gf-cf", value_D, 0.5).tolist() == [1.5, 0.5, 0.5, 0]
    torch.testing.assert_close(response("shrunk", value_D, 1.0), torch.tensor([2 / 3, 0.5, 0.5, 0]))
    for kind in ("truncated", "linear", "gf-cf", "shrunk"):
        assert response(kind, torch.zeros(4), 1.0).tolist() == [0, 0, 0, 0]  # type: ignore[arg-type]


def test_low_rank_ease_is_ease_where_the_rest_is_diagonal() -> None:
    """G = U L U' + diagonal: the two tables give the weights of EASE off the diagonal."""
    basis_ID = torch.linalg.qr(
        torch.linspace(-1, 1, 12, dtype=torch.float64).view(6, 2).sin() ** 2
    ).Q
    value_D, more_I = (
        torch.tensor([5.0, 2.0], dtype=torch.float64),
        torch.linspace(1, 2, 6, dtype=torch.float64),
    )
    low_II = basis_ID * value_D @ basis_ID.mT
    gram_II = low_II + torch.diag(more_I)
    strength = 3.0 / float(gram_II.diagonal().mean())
    p_II = torch.linalg.inv(gram_II + 3.0 * torch.eye(6))
    ease_II = (p_II / -p_II.diagonal()).fill_diagonal_(0)
    half_I = torch.ones(6, dtype=torch.float64)
    found = low_rank_ease(basis_ID, value_D, gram_II.diagonal(), half_I, strength)
    b_II = (found["items"] * found["weight"][:, None] * found["filter"]) @ found["items"].mT
    torch.testing.assert_close(b_II.fill_diagonal_(0), ease_II)


def test_low_rank_ease_comes_from_the_sums() -> None:
    lists = split(generate(Synthetic(users=80, items=20, mean_items=5)), SplitConfig()).train
    ours = method(20, 20, sums=2, response="ease", strength=0.5, item_power=0.0, user_power=0.0)
    public = sums(ours, fleet_of(ours, lists), 2).public
    gram_II = dense(lists, 20).mT @ dense(lists, 20)
    p_II = torch.linalg.inv(gram_II + 0.5 * gram_II.diagonal().mean() * torch.eye(20))
    b_II = (public["items"] * public["weight"][:, None] * public["filter"]) @ public["items"].mT
    has_II = (gram_II.diagonal() > 0)[:, None] & (gram_II.diagonal() > 0)
    ease_II = (p_II / -p_II.diagonal()).fill_diagonal_(0) * has_II
    torch.testing.assert_close(b_II.fill_diagonal_(0), ease_II, rtol=0, atol=1e-6)


def test_an_item_that_stands_twice_counts_squared_in_the_diagonal() -> None:
    """x = (2, 1): X'X = [[4, 2], [2, 1]] has the diagonal 4, 1; columns are u, degree, diagonal."""
    ours = method(1, 2, sums=1, response="ease", item_power=0.0, user_power=0.0)
    fleet = fleet_of(ours, Ragged.of([[0, 1, 0]]))
    total = fleet.ask(
        Request(
            "report", 1, fleet.ids_N, Download(Sent(dict(double(start(ours)).public))), fold=True
        )
    )
    rows = total.extra["spectral"]["rows"]
    assert rows[:, 1:].tolist() == [[2, 4], [1, 1]]

    lists = Ragged.of([[0, 1, 0], [0, 2], [1, 2, 2, 2], [3, 0]])
    ours = method(4, 4, sums=2, response="ease", strength=0.5, item_power=0.0, user_power=0.0)
    server = sums(ours, fleet_of(ours, lists), 2)
    x_NI = dense(lists, 4)
    gram_II = x_NI.mT @ x_NI
    p_II = torch.linalg.inv(gram_II + 0.5 * gram_II.diagonal().mean() * torch.eye(4))
    b_II = (
        server.public["weight"][:, None] * server.public["items"] * server.public["filter"]
    ) @ server.public["items"].mT
    torch.testing.assert_close(
        b_II.fill_diagonal_(0), (p_II / -p_II.diagonal()).fill_diagonal_(0), rtol=0, atol=1e-6
    )


def test_scores_by_hand() -> None:
    model = Spectral(2)
    params = {
        "items": torch.tensor([[[1.0, 0.0], [2.0, 2.0], [0.0, 3.0]]]),
        "weight": torch.tensor([[1.0, 0.25, 0.5]]),
        "filter": torch.tensor([[1.0, 0.5]]),
    }
    history = History.of(Ragged.of([[0, 1], [2], []]))
    assert model.listed(params, history).tolist() == [[1.5, 0.5], [0.0, 1.5], [0.0, 0.0]]
    u_CD = model.user(params, history, Rng.of(0, 0, torch.arange(3)), False)
    assert u_CD.tolist() == [[1.5, 0.25], [0.0, 0.75], [0.0, 0.0]]
    assert model.score(params, u_CD, params["items"]).tolist() == [
        [1.5, 3.5, 0.75],
        [0.0, 1.5, 2.25],
        [0.0, 0.0, 0.0],
    ]


def test_clients_choose_the_filter_that_serves_their_validation_items() -> None:
    """The chosen strength is the best of those tried one by one; sums of K + 1 numbers are sent."""
    rows = split(
        generate(Synthetic(users=300, items=80, mean_items=16)),
        SplitConfig(kind="ratio", order="random"),
    )
    tries = (0.01, 1.0, 100.0)
    ours = method(8, 80, sums=2, choose=tries)
    fleet = fleet_of(ours, rows.train, HeldOut(rows.valid, rows.test))
    server = sums(ours, fleet, 3)
    found = {}
    for strength in tries:
        alone = method(8, 80, sums=2, strength=strength)
        public = sums(alone, fleet_of(alone, rows.train), 2).public
        answer = fleet.ask(Request("evaluate", 5, fleet.ids_N, Download(Sent(dict(public)))))
        assert not isinstance(answer, Total)
        found[strength] = float(answer.extra["evaluate"]["valid/ndcg@20"].nanmean())
    best = max(found, key=lambda s: found[s])
    told = server.state["spectral"]
    assert float(told["tell/strength"]) == pytest.approx(best)
    assert float(told["tell/valid"]) == pytest.approx(found[best])
    assert fleet.meter.bytes["report", "spectral/valid"] < 300 * 200


def test_without_validation_items_the_strength_is_the_given_one() -> None:
    ours = method(3, ITEMS, sums=2, choose=(0.1, 10.0))
    two, three = (sums(ours, fleet_of(ours, LISTS), rounds) for rounds in (2, 3))
    assert torch.equal(two.public["filter"], three.public["filter"])


def test_a_rank_above_the_number_of_items_is_refused() -> None:
    ours = method(8, ITEMS)
    with pytest.raises(CoveyError, match=r"model\.rank = 8 but there are 7 items"):
        sums(ours, fleet_of(ours, LISTS), 1)
    full = method(7, ITEMS)  # as many as items is fine, also where the data have fewer directions
    assert all(
        bool(v.isfinite().all()) for v in sums(full, fleet_of(full, LISTS), 3).public.values()
    )


def test_users_without_items_change_nothing() -> None:
    """Neither some of them nor all."""
    more = Ragged.cat([LISTS, Ragged.of([[], [], []])])
    ours = method(3, ITEMS)
    one, two = (sums(ours, fleet_of(ours, lists), 3).public for lists in (LISTS, more))
    for name in one:
        torch.testing.assert_close(one[name], two[name])
    nobody = sums(ours, fleet_of(ours, Ragged.of([[], [], []])), 2).public
    assert all(bool(v.isfinite().all()) for v in nobody.values()) and not nobody["filter"].any()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"sums": 0}, "sums = 0"),
        ({"strength": 0.0}, "strength = 0.0"),
        ({"choose": (1.0, -1.0)}, "choose = -1.0"),
        ({"item_power": 1.5}, "item_power"),
        ({"response": "ease", "choose": (1.0,)}, "nothing to choose"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(CoveyError, match=why):
        SubspaceIteration(**options)


def test_a_new_user_is_served_at_once_from_its_own_items() -> None:
    fitted = covey.fit(
        "spectral", data={"users": 60, "items": 40, "mean_items": 8}, model={"rank": 8}
    )
    public = fitted.scorer.server.public  # type: ignore[attr-defined]
    u_D = (public["items"] * public["weight"][:, None])[[3, 5]].sum(0) * public["filter"]
    torch.testing.assert_close(
        fitted.scorer.newcomer(Ragged.of([[3, 5]]), 0)[0], public["items"] @ u_D
    )


def test_an_item_that_stands_twice_is_one_row_with_double_weight() -> None:
    items, count_T = distinct(LISTS, ITEMS)
    assert items.padded(4).tolist() == [
        [0, 1, 2, 0],
        [1, 3, 0, 0],
        [0, 0, 0, 0],
        [0, 4, 0, 0],
        [1, 2, 3, 5],
    ]
    assert count_T.tolist() == [1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1]


def test_only_sums_reach_the_server() -> None:
    ours = method(3, ITEMS)
    fleet = fleet_of(ours, LISTS)
    public = Sent(dict(start(ours).public))
    answer = fleet.ask(
        Request("report", 1, fleet.ids_N, Download(public), fold=ours.folds("report"))
    )
    assert isinstance(answer, Total)
    assert ours.folds("report") and ours.folds("train")


def test_four_sums_beat_popularity() -> None:
    rows = split(
        generate(Synthetic(users=400, items=120, mean_items=20)),
        SplitConfig(kind="ratio", order="random"),
    )
    ours = method(8, 120)
    fleet = fleet_of(ours, rows.train, HeldOut(rows.valid, rows.test))
    assert torch.equal(pool(rows, "train").lengths, rows.train.lengths)
    server = sums(ours, fleet, 4)
    popular = {
        "items": torch.bincount(rows.train.values, minlength=120)[:, None].double(),
        "weight": torch.ones(120).double(),
        "filter": torch.ones(1).double(),
    }

    def recall(public: dict[str, Tensor]) -> float:
        answer = fleet.ask(Request("evaluate", 5, fleet.ids_N, Download(Sent(dict(public)))))
        return float(answer.extra["evaluate"]["test/recall@20"].nanmean())

    assert recall(server.public) > 1.2 * recall(popular)

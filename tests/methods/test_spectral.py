"""Subspace iteration by sums: it is the power method on the pooled, normalised matrix, and forgets nobody."""

import torch
from torch import Tensor

from covey.client import LocalData, Program
from covey.core import Catalogue, Download, Ragged, Round, Sent, Total
from covey.data.split import SplitConfig, pool, split
from covey.data.synthetic import Synthetic, generate
from covey.fleet.simulated import SimulatedFleet
from covey.measure import HeldOut
from covey.mechanism import TrainingData
from covey.methods.spectral import SubspaceIteration, distinct
from covey.models.base import History
from covey.models.spectral import Spectral
from covey.objectives import NoObjective
from covey.rng import Rng
from covey.server import Method, Server, enrol, run_round, start
from covey.testing import Conformance

LISTS = Ragged.of([[0, 1, 2], [1, 3], [], [4, 0, 4], [2, 3, 1, 5]])  # client 3 has an item twice
ITEMS = 7  # nobody has item 6


def method(rank: int, n_items: int) -> Method:
    return Method(Spectral(rank), NoObjective(), Catalogue(n_items), None, (SubspaceIteration(),))


def fleet_of(method: Method, lists: Ragged, held: HeldOut | None = None) -> SimulatedFleet:
    program = Program(method.model, method.objective, method.catalogue, None, method.mechanisms)
    return SimulatedFleet(program, LocalData(TrainingData(lists, lists), held), secure=True)


def double(server: Server) -> Server:
    return Server({k: v.double() for k, v in server.public.items()}, server.memory)


def sums(method: Method, fleet: SimulatedFleet, rounds: int) -> Server:
    server = enrol(double(start(method)), fleet, method)
    for number in range(1, rounds + 1):
        server, _ = run_round(server, fleet, method, Round(number, fleet.ids_N))
    return server


def dense(lists: Ragged, n_items: int) -> Tensor:
    x_NI = torch.zeros(len(lists), n_items, dtype=torch.float64)
    return x_NI.index_put_((lists.owner, lists.values), torch.ones((), dtype=torch.float64), accumulate=True)


def projector(basis_ID: Tensor) -> Tensor:
    return basis_ID @ basis_ID.mT


class TestSpectral(Conformance):
    rounds = 3
    users = cohort = 60  # items of the very same users tie, and rounding would break the tie: few are alike here

    def method(self, catalogue: Catalogue) -> Method:
        return Method(Spectral(4), NoObjective(), catalogue, None, (SubspaceIteration(),))


def test_a_round_is_the_power_method_on_the_pooled_matrix() -> None:
    ours = method(3, ITEMS)
    fleet = fleet_of(ours, LISTS)
    server = sums(ours, fleet, 1)
    x_NI = dense(LISTS, ITEMS)
    degree_I, n_N = x_NI.sum(0).clamp(min=1), x_NI.sum(1).clamp(min=1)
    a_NI = x_NI / (n_N[:, None] * degree_I).sqrt()
    start_ID = start(ours).public["items"].double() * degree_I.sqrt()[:, None]
    for number in (2, 3):
        start_ID = torch.linalg.qr(a_NI.mT @ a_NI @ start_ID).Q
        basis_ID = server.public["items"] / degree_I.sqrt()[:, None]
        torch.testing.assert_close(server.public["degree"], degree_I)
        torch.testing.assert_close(projector(basis_ID), projector(start_ID), rtol=0, atol=1e-12)
        server, _ = run_round(server, fleet, ours, Round(number, fleet.ids_N))


def test_enough_rounds_find_the_leading_eigenvectors() -> None:
    lists = split(generate(Synthetic(users=60, items=24, mean_items=6)), SplitConfig()).train
    ours = method(2, 24)
    server = sums(ours, fleet_of(ours, lists), 200)
    x_NI = dense(lists, 24)
    degree_I = x_NI.sum(0).clamp(min=1)
    a_NI = x_NI / (x_NI.sum(1).clamp(min=1)[:, None] * degree_I).sqrt()
    top_ID = torch.linalg.eigh(a_NI.mT @ a_NI).eigenvectors[:, -2:]
    basis_ID = server.public["items"] / degree_I.sqrt()[:, None]
    torch.testing.assert_close(projector(basis_ID), projector(top_ID), rtol=0, atol=1e-6)


def test_scores_by_hand() -> None:
    model = Spectral(2)
    params = {
        "items": torch.tensor([[[1.0, 0.0], [2.0, 2.0], [0.0, 3.0]]]),
        "degree": torch.tensor([[1.0, 4.0, 2.0]]),
    }
    history = History.of(Ragged.of([[0, 1], [2], []]))
    u_CD = model.user(params, history, Rng.of(0, 0, torch.arange(3)), False)
    assert u_CD.tolist() == [[1.5, 0.5], [0.0, 1.5], [0.0, 0.0]]
    assert model.score(params, u_CD, params["items"]).tolist() == [[1.5, 4.0, 1.5], [0.0, 3.0, 4.5], [0.0, 0.0, 0.0]]


def test_an_item_that_stands_twice_is_one_row_with_double_weight() -> None:
    items, count_T = distinct(LISTS, ITEMS)
    assert items.padded(4).tolist() == [[0, 1, 2, 0], [1, 3, 0, 0], [0, 0, 0, 0], [0, 4, 0, 0], [1, 2, 3, 5]]
    assert count_T.tolist() == [1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1]


def test_only_sums_reach_the_server() -> None:
    ours = method(3, ITEMS)
    fleet = fleet_of(ours, LISTS)
    public = Sent(dict(start(ours).public))
    answer = fleet.ask("report", 1, fleet.ids_N, Download(public), fold=ours.hears_sums)
    assert isinstance(answer, Total)
    assert ours.hears_sums and ours.folds


def test_four_sums_beat_popularity() -> None:
    rows = split(generate(Synthetic(users=400, items=120, mean_items=20)), SplitConfig(kind="ratio", order="random"))
    ours = method(8, 120)
    fleet = fleet_of(ours, rows.train, HeldOut(rows.valid, rows.test))
    assert torch.equal(pool(rows, "train").lengths, rows.train.lengths)
    server = sums(ours, fleet, 4)
    popular = {
        "items": torch.bincount(rows.train.values, minlength=120)[:, None].double(),
        "degree": torch.ones(120).double(),
    }

    def recall(public: dict[str, Tensor]) -> float:
        answer = fleet.ask("evaluate", 5, fleet.ids_N, Download(Sent(dict(public))))
        return float(answer.extra["evaluate"]["test/recall@20"].nanmean())

    assert recall(server.public) > 1.2 * recall(popular)

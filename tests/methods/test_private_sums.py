"""Noisy sums: the noise is what the budget needs, summands are bounded, and the budget ends."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from covey.contract.accountant import gaussian_epsilon
from covey.contract.fleet import Request
from covey.contract.ledger import Ledger
from covey.contract.views import ServerView, TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Download, Round, Sent, Total
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.client.program import LocalData, Program
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.method import Method
from covey.engine.rounds import Server, enrol, run_round, start, view
from covey.engine.secure.settings import SINGLES
from covey.methods.private_sums import PrivateCount, PrivateSubspace
from covey.models.spectral import Spectral
from covey.objectives.pairs import NoObjective
from covey.testing import Conformance

LISTS = Ragged.of([[0, 1, 2], [1, 3], [], [4, 0, 4], [2, 3, 1, 5]])
ITEMS = 7


def method(rank: int, part: PrivateSubspace, n_items: int = ITEMS) -> Method:
    return Method(Spectral(rank), NoObjective(), Catalogue(n_items), None, (part,))


def fleet_of(ours: Method, lists: Ragged = LISTS) -> SimulatedFleet:
    program = Program(ours.model, ours.objective, ours.catalogue, None, ours.mechanisms)
    return SimulatedFleet(program, LocalData(TrainingData(lists, lists)), hides=SINGLES)


def rounds(ours: Method, fleet: SimulatedFleet, many: int) -> Server:
    server = enrol(start(ours), fleet, ours)
    for number in range(1, many + 1):
        server, _ = run_round(server, fleet, ours, Round(number, fleet.ids_N))
    return server


class TestPrivateSubspace(Conformance):
    rounds = 3
    users = cohort = 40

    def method(self, catalogue: Catalogue) -> Method:
        return Method(
            Spectral(3),
            NoObjective(),
            catalogue,
            None,
            (PrivateSubspace(sums=3, epsilon=50.0, shrink=0.5),),
        )


class TestPrivateCount(Conformance):
    rounds = 2
    users = cohort = 40

    def method(self, catalogue: Catalogue) -> Method:
        return Method(
            Spectral(1), NoObjective(), catalogue, None, (PrivateCount(sums=2, epsilon=50.0),)
        )


def test_the_budget_by_hand() -> None:
    """Balle and Wang (2018) with mu = 1 and epsilon = 1.

    delta = Phi(-1/2) - e Phi(-3/2) = 0.3085 - 2.7183 * 0.0668 = 0.1269. Four sums with noise 2 cost
    as much as one with noise 1; each alone, with mu = 1/2, costs delta = 0.1269 / 4 at epsilon
    0.6423: Phi(-1.0346) - e^0.6423 Phi(-1.5346) = 0.1504 - 1.9009 * 0.0624 = 0.0317.
    """
    part = PrivateSubspace(sums=4, epsilon=1.0, delta=0.126937)
    assert part.sigma == pytest.approx(2.0, abs=1e-4)
    ledger = Ledger.of(part.disclosures())
    ledger.sends = {("report", "spectral/sum"): 4}
    owed = ledger.summary(0.126937)
    assert owed["accountant"]["epsilon"] == pytest.approx(1.0, abs=1e-4)
    assert owed["delta_user"] == pytest.approx(0.126937)
    assert owed["epsilon_user"] == pytest.approx(4 * 0.6423, abs=1e-3)


@pytest.mark.parametrize(("sums", "epsilon"), [(1, 2.0), (2, 8.0), (4, 16.0)])
def test_the_budget_by_another_accountant(sums: int, epsilon: float) -> None:
    """dp-accounting rounds losses up, so it may name a little more and never less."""
    pld = pytest.importorskip(
        "dp_accounting.pld.privacy_loss_distribution", reason="pip install 'covey[privacy]'"
    )
    part = PrivateSubspace(sums=sums, epsilon=epsilon)
    one = pld.from_gaussian_mechanism(part.sigma, value_discretization_interval=1e-3)
    theirs = one.self_compose(sums).get_epsilon_for_delta(1e-5)
    ledger = Ledger.of(part.disclosures())
    for sent, total in (
        (sums, epsilon),
        (sums + 3, epsilon),
    ):  # what is asked for later is not answered
        ledger.sends = {("report", "spectral/sum"): sent}
        owed = ledger.summary(1e-5)
        ours = owed["accountant"]["epsilon"] if owed["accountant"] else owed["epsilon_user"]
        assert ours == pytest.approx(total, rel=1e-6) and theirs == pytest.approx(total, rel=2e-3)


def test_two_private_parts_spend_together() -> None:
    """A count and a subspace, each of epsilon 2: 1/z^2 adds up to a total between 2 and 4."""
    parts = (PrivateCount(epsilon=2.0), PrivateSubspace(sums=2, epsilon=2.0))
    ledger = Ledger.of(d for part in parts for d in part.disclosures())
    ledger.sends = {("report", "count/sum"): 1, ("report", "spectral/sum"): 2}
    z = (1 / parts[0].sigma ** 2 + 2 / parts[1].sigma ** 2) ** -0.5
    assert ledger.summary(1e-5)["accountant"]["epsilon"] == pytest.approx(gaussian_epsilon(1e-5, z))
    assert 2 < gaussian_epsilon(1e-5, z) < 4


def test_strength_damps_by_the_mean_value() -> None:
    """Values 3 and 1, their mean 2: with strength 1 the gains are 3 / (3 + 2) and 1 / (1 + 2)."""
    part, z_ID = (
        PrivateSubspace(shrink=0.0, strength=1.0),
        torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]]),
    )
    public = Spectral(2).public(3, Rng.server(0, 0, "public"))
    view = ServerView(
        public,
        {},
        Round(1, torch.arange(2)),
        0,
        part.name,
        Spectral(2),
        NoObjective(),
        Catalogue(3),
    )
    heard = Total(torch.arange(2), torch.tensor(2.0), {}, extra={part.name: {"sum": z_ID}})
    torch.testing.assert_close(
        part.receive_reports(view, heard)[1]["filter"], torch.tensor([3 / 5, 1 / 3])
    )


def test_more_sums_need_more_noise() -> None:
    one, four = (PrivateSubspace(sums=sums).sigma for sums in (1, 4))
    assert four == pytest.approx(2 * one)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_nobody_adds_more_than_one(scale: float) -> None:
    """Whatever basis a server sends: the part of a client has norm 1 at most."""
    ours = method(3, PrivateSubspace(noise="summed"))
    fleet = fleet_of(ours)
    basis = Sent({"basis": scale * torch.randn(ITEMS, 3), "clients": torch.tensor(5)})
    for one in range(5):
        total = fleet.ask(
            Request(
                "report",
                1,
                torch.tensor([one]),
                Download(Sent(dict(start(ours).public)), {"spectral": basis}),
            )
        )
        rows = total.extra["spectral"]["rows" if isinstance(total, Total) else "sum"]
        assert float(rows.values.norm()) <= 1 + 1e-6


def test_shares_add_up_to_the_noise() -> None:
    """Of the sum over clients: as the budget needs, and wider by the reserve for drop-out."""
    lists = Ragged.of([[] for _ in range(50)])
    nothing = Total(
        torch.arange(50), torch.tensor(50.0), {}, extra={"count": {"sum": torch.zeros(4000, 1)}}
    )
    for lost, wide in ((0.0, 1.0), (0.75, 2.0)):
        part = PrivateCount(lost=lost)
        ours = method(1, part, 4000)
        about = Sent({"basis": torch.zeros(4000, 1), "clients": torch.tensor(50)})
        fleet = fleet_of(ours, lists)
        sent = Download(Sent(dict(start(ours).public)), {"count": about})
        total = fleet.ask(Request("report", 1, fleet.ids_N, sent, fold=True))
        assert float(total.extra["count"]["sum"].std()) == pytest.approx(
            wide * part.sigma, rel=0.05
        )
        drawn_ID = replace(part, noise="summed")._sum(
            view(start(ours), ours, "count", Round(1, fleet.ids_N)), nothing
        )
        assert float(drawn_ID.std()) == pytest.approx(
            wide * part.sigma, rel=0.05
        )  # drawn once it is as wide


def test_without_much_noise_it_is_the_power_method() -> None:
    ours = method(2, PrivateSubspace(sums=40, epsilon=500.0, noise="summed"))
    lists = Ragged.of([[0, 1, 2]] * 4000 + [[3, 4]] * 2000 + [[5, 6, 1]] * 10)
    basis_ID = rounds(ours, fleet_of(ours, lists), 40).public["items"]
    want = torch.zeros(ITEMS, 2)
    want[[0, 1, 2], 0], want[[3, 4], 1] = 3**-0.5, 2**-0.5
    torch.testing.assert_close((basis_ID @ basis_ID.mT), want @ want.mT, rtol=0, atol=0.02)


def test_a_count_ranks_by_popularity() -> None:
    ours = method(1, PrivateCount(epsilon=500.0, noise="summed"))
    lists = Ragged.of([[0]] * 3000 + [[1]] * 2000 + [[2, 3]] * 1000)
    items_I = rounds(ours, fleet_of(ours, lists), 1).public["items"][:, 0]
    assert items_I.argsort(descending=True)[:2].tolist() == [0, 1] and bool((items_I > 0).all())


def test_nobody_reports_once_the_budget_is_spent() -> None:
    ours = method(2, PrivateSubspace(sums=2))
    fleet = fleet_of(ours)
    two, five = rounds(ours, fleet, 2), rounds(ours, fleet_of(ours), 5)
    assert torch.equal(two.public["items"], five.public["items"])
    for summed in (True, False):  # a promise about sums is none about single parts
        ledger = Ledger.of(
            replace(fleet.program, hidden=SINGLES if summed else frozenset()).disclosures()
        )
        ledger.sends = fleet.meter.most_sends()
        assert ledger.table()[0]["messages_per_user"] == 2
        owed = ledger.summary(1e-5)
        if summed:
            assert owed["accountant"]["epsilon"] == pytest.approx(8.0) and not owed["unprotected"]
        else:
            assert owed["unprotected"] and owed["accountant"] is None
    seen = replace(
        fleet.program, hidden=SINGLES, mechanisms=(PrivateSubspace(sums=2, noise="summed"),)
    )
    assert math.isinf(seen.disclosures()[-1].epsilon)  # whoever adds the noise has seen the sum


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"epsilon": 0.0}, "epsilon = 0.0"),
        ({"epsilon": 501.0}, "protects nothing"),
        ({"delta": 1.0}, "delta = 1.0"),
        ({"lost": 1.0}, "lost = 1.0"),
        ({"sums": 0}, "sums = 0"),
        ({"shrink": -1.0}, "shrink = -1"),
        ({"strength": -1.0}, "strength = -1"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(CoveyError, match=why):
        PrivateSubspace(**options)


def test_it_needs_the_spectral_model_and_its_rank() -> None:
    with pytest.raises(CoveyError, match=r"model\.rank = 8"):
        rounds(method(8, PrivateSubspace()), fleet_of(method(8, PrivateSubspace())), 1)
    assert math.isfinite(PrivateSubspace().sigma)

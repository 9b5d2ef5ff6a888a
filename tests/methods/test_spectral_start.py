"""A start from the spectral factors: after the sums the table is set, and training goes on."""

import pytest
import torch

from covey.contract.views import TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Round
from covey.core.ragged import Ragged
from covey.engine.client.program import LocalData, Program
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.method import Method
from covey.engine.rounds import enrol, run_round, start
from covey.engine.secure.settings import SINGLES
from covey.methods.cofedrec import CoClusters
from covey.methods.spectral_start import SpectralStart
from covey.models.mf import MF
from covey.models.pfedrec import LinearScore
from covey.models.spectral import Spectral
from covey.objectives.pairs import Bce, NoObjective
from covey.solvers import Local
from covey.testing import Conformance


class TestSpectralStart(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return Method(MF(4), Bce(), catalogue, Local("sgd", 0.1), (SpectralStart(sums=2),))


def test_the_table_holds_the_leading_directions() -> None:
    """Without a training step: two groups of items that never meet have two directions."""
    lists = Ragged.of([[0, 1, 2], [0, 1, 2], [0, 1, 2], [3, 4], [3, 4]])
    ours = Method(MF(2), NoObjective(), Catalogue(5), None, (SpectralStart(sums=3, width=2.0),))
    program = Program(ours.model, ours.objective, ours.catalogue, None, ours.mechanisms)
    fleet = SimulatedFleet(program, LocalData(TrainingData(lists, lists)), hides=SINGLES)
    server = enrol(start(ours), fleet, ours)
    before = server.public["items"]
    for number in range(1, 6):
        server, _ = run_round(server, fleet, ours, Round(number, fleet.ids_N))
        assert torch.equal(server.public["items"], before) == (number < 3)
    items_ID = server.public["items"]
    assert float(items_ID.std()) == pytest.approx(2 * float(before.std()), rel=1e-4)
    torch.testing.assert_close(items_ID[:3], items_ID[:1].expand(3, -1), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(items_ID[0] @ items_ID[3], torch.tensor(0.0), rtol=0, atol=1e-5)
    assert fleet.meter.most_sends()["report", "spectral start/rows"] == 3


def test_clients_with_tables_of_their_own_are_handed_the_factors() -> None:
    lists = Ragged.of([[0, 1, 2], [0, 1, 2], [3, 4]])
    model = LinearScore(2, keep_items=True)
    ours = Method(
        model,
        NoObjective(),
        Catalogue(5),
        None,
        (SpectralStart(sums=2),),
        grouping=CoClusters(categories=2),
    )
    program = Program(model, ours.objective, ours.catalogue, None, ours.mechanisms)
    fleet = SimulatedFleet(program, LocalData(TrainingData(lists, lists)))
    server = enrol(start(ours), fleet, ours)
    before = server.public["items"]
    for number in (1, 2, 3):
        server, _ = run_round(server, fleet, ours, Round(number, torch.tensor([0])))
        assert torch.equal(server.public["items"], before) == (number < 2)
        own_CID = fleet.store.take(fleet.ids_N)["items"]
        assert torch.equal(own_CID, server.public["items"].expand(3, -1, -1))


def test_a_share_of_the_table_that_was_there_stays() -> None:
    def table(blend: float) -> tuple[torch.Tensor, torch.Tensor]:
        lists = Ragged.of(
            [[0, 1, 2], [0, 1, 2], [3, 4]]
        )  # nobody has item 5: its row of the factors is nothing
        ours = Method(
            MF(2), NoObjective(), Catalogue(6), None, (SpectralStart(sums=1, blend=blend),)
        )
        program = Program(ours.model, ours.objective, ours.catalogue, None, ours.mechanisms)
        fleet = SimulatedFleet(program, LocalData(TrainingData(lists, lists)))
        server = enrol(start(ours), fleet, ours)
        return server.public["items"], run_round(server, fleet, ours, Round(1, fleet.ids_N))[
            0
        ].public["items"]

    before, plain = table(0.0)
    _, mixed = table(0.25)
    torch.testing.assert_close(mixed, 0.75 * plain + 0.25 * before)
    assert float(plain[5].norm()) < 1e-6 and float(mixed[5].norm()) > 0.1 * float(before[5].norm())
    with pytest.raises(CoveyError, match="a share"):
        SpectralStart(blend=1.5)


def test_everybody_is_in_the_sums_whoever_trains() -> None:
    lists = Ragged.of([[0, 1, 2], [0, 1, 2], [0, 1, 2], [3, 4], [3, 4]])
    ours = Method(MF(2), Bce(), Catalogue(5), Local("sgd", 0.1), (SpectralStart(sums=2),))
    program = Program(ours.model, ours.objective, ours.catalogue, ours.solver, ours.mechanisms)
    fleet = SimulatedFleet(program, LocalData(TrainingData(lists, lists)))
    server = enrol(start(ours), fleet, ours)
    for number in range(1, 4):
        server, answered = run_round(server, fleet, ours, Round(number, torch.tensor([0, 1])))
        assert answered.ids_C.tolist() == [0, 1]
    sends = fleet.meter.sends_N["report", "spectral start/rows"]
    assert (
        sends.tolist() == [2] * 5
    )  # in the first two rounds, also those who were not asked to train


def test_more_directions_than_items_are_refused() -> None:
    ours = Method(MF(8), Bce(), Catalogue(5), Local("sgd", 0.1), (SpectralStart(),))
    program = Program(ours.model, ours.objective, ours.catalogue, ours.solver, ours.mechanisms)
    lists = Ragged.of([[0], [1]])
    with pytest.raises(CoveyError, match="there are 5 items"):
        enrol(start(ours), SimulatedFleet(program, LocalData(TrainingData(lists, lists))), ours)
    with pytest.raises(CoveyError, match="width = 0"):
        SpectralStart(width=0.0)
    assert Spectral(5).rank == 5

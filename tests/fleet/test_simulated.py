"""The simulated fleet's own care: a diverged client costs itself, not the round."""

import torch

from covey.aggregate.combine import Sum
from covey.contract.views import TrainingData
from covey.core.messages import Catalogue, Download, Round, Upload
from covey.core.ragged import Ragged
from covey.engine.client.program import LocalData, Program
from covey.engine.fleet.meter import Meter
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.method import Method
from covey.engine.rounds import enrol, run_round, start
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.solvers import Local

LISTS = [[0, 1, 2], [3, 4], [5, 6, 7], [1, 8]]


def after_a_round(diverged: int | None) -> tuple[torch.Tensor, SimulatedFleet]:
    model, objective, catalogue, solver = (
        MF(dim=4),
        Bce(),
        Catalogue(12),
        Local("sgd", lr=1.0, epochs=1),
    )
    items = Ragged.of(LISTS)
    fleet = SimulatedFleet(
        Program(model, objective, catalogue, solver), LocalData(TrainingData(items, items))
    )
    assert fleet.program.can_sum()
    if diverged is not None:
        fleet.store.dense["user"][diverged] = torch.nan
    method = Method(model, objective, catalogue, solver, combine=Sum())
    server = enrol(start(method), fleet, method)
    present = [c for c in range(4) if diverged is not None or c != 2]
    server, _ = run_round(server, fleet, method, Round(1, torch.tensor(present)))
    return server.public["items"], fleet


def test_a_diverged_client_is_left_out_of_a_sum_and_nobody_else() -> None:
    without, quiet = after_a_round(None)
    among, fleet = after_a_round(2)
    torch.testing.assert_close(among, without)
    assert fleet.meter.dropped == {"not finite": 1} and quiet.meter.dropped == {}


def test_a_paused_meter_counts_fields_and_no_traffic() -> None:
    upload = Upload(torch.tensor([0, 2]), torch.ones(2), {"items": torch.zeros(2, 3)})
    meter = Meter(4)
    meter.received("train", upload)
    traffic, size = (meter.up, meter.down), meter.bytes["train", "update/items"]
    with meter.paused():
        meter.received("train", upload)
        meter.sent(Download(), 2)
    assert (meter.up, meter.down) == traffic
    assert meter.bytes["train", "update/items"] == 2 * size
    meter.received("train", upload)
    assert meter.up == 2 * traffic[0]

"""One, two and three workers, chunks of any size and any number of shards give the same bits.

`make test-workers` runs the whole grid; otherwise every method runs with one worker and with three.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from covey.contract.fleet import Request
from covey.core.messages import Download, Sent
from covey.engine.fleet.processes import Processes
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.rounds import enrol, run_round, start
from covey.run.assemble import clients_of, method_of, prepare
from covey.run.config.schema import Config
from covey.run.config.shipped import read, shipped
from covey.run.config.tree import assign, merge
from covey.run.schedule import cohort
from covey.testing.compare import expect_same

WORKERS = 3
GRID = bool(os.environ.get("COVEY_TEST_GRID"))
SMALL = ["data.users=70", "data.items=50", "data.mean_items=7", "engine.shards=8"]
OWN = {
    "cofedrec": ["grouping.categories=4"],
    "cofedrec-mf": ["grouping.categories=4"],
    "cofedrec-ncf": ["grouping.categories=4"],
    "fedcl": ["model.dim=8"],
    "pdc-frs-titles": ["mechanism.0.similarity=words"],  # without the extra
    "spectral": ["model.rank=8"],
    "spectral-private": ["model.rank=8"],
}
FEDERATED = [name for name in shipped("methods") if "pooled" not in read("methods", name)]
CASES = [pytest.param(name, [], id=name) for name in FEDERATED]
ATTACK = ['attack.use="covey.attacks.a_ra:ARa"', "attack.share=0.1"]
CASES += [pytest.param("fedncf", ATTACK, id="fedncf under attack")]


@pytest.fixture(scope="module")
def pool() -> Iterator[Processes]:
    team = Processes.spawn(WORKERS)
    yield team
    team.close()


def config_of(name: str, sets: list[str]) -> Config:
    tree = merge(read("methods", name) | {"method": name}, read("presets", "loo-full"))
    tree["run"] = tree.get("run", {}) | {"cohort": 0, "rounds": 3}
    return Config.of(assign(tree, [*SMALL, *OWN.get(name, []), *sets]))


def played(config: Config, workers: int, pool: Processes | None = None) -> dict[str, Any]:
    """All that a run shows after its rounds."""
    prepared = prepare(config)
    method = method_of(config, prepared.catalogue)
    c = clients_of(config, prepared, method)
    parts = (c.program, c.data, c.seed, c.n_present, c.malicious)
    fleet = SimulatedFleet(*parts, workers=workers, pool=pool)
    try:
        server = enrol(start(method), fleet, method)
        for number in range(1, config.run.rounds + 1):
            server, _ = run_round(server, fleet, method, cohort(config, fleet.ids_N, number))
        answered = Request("evaluate", 3, fleet.ids_N[fleet.ids_N < c.population.n_honest])
        metrics = fleet.ask(Request(*_of(answered, server.public)))
        busy = [] if pool is None else fleet.team.call("busy", [()] * workers)
        assert all(busy), "a worker answered for no client"
        meter = fleet.meter
        counted = {"up": meter.up, "down": meter.down, "bytes": meter.bytes, "n": meter.sends_N}
        return {"public": server.public, "state": server.state, "metrics": metrics, **counted}
    finally:
        fleet.close()


def _of(request: Request, public: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    return request.step, request.round, request.ids_C, Download(Sent(dict(public)))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sets"), CASES)
def test_the_same_bits(name: str, sets: list[str], pool: Processes) -> None:
    one = played(config_of(name, sets), 1)
    expect_same(one, played(config_of(name, sets), WORKERS, pool), why="three workers")
    if GRID:
        for more in (["engine.chunk=37"], ["engine.shards=1"]):
            expect_same(one, played(config_of(name, [*sets, *more]), 1), why=str(more))
        more = ["engine.chunk=37"]
        two = Processes.spawn(2)
        try:
            expect_same(one, played(config_of(name, [*sets, *more]), 2, two), why="two workers")
        finally:
            two.close()

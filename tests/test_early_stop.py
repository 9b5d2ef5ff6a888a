"""Early stopping on validation, and weight decay on devices."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from covey.core.errors import CoveyError
from covey.core.messages import Catalogue
from covey.engine.method import Method
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.run.config.compose import compose
from covey.run.config.schema import Config
from covey.run.loop import run
from covey.run.schedule import ends_early
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.compare import expect_same
from covey.testing.world import Play

SIZES = ["data.users=60", "data.items=60", "data.mean_items=8", "run.ceilings=[]"]
SMALL = [*SIZES, "model.scale=0.1", "solver.decay=0.0", "run.patience=0", "evaluate.every=1"]
FALLS = [*SMALL, "solver.lr=0.3"]  # overfits within a few rounds


def config_of(*sets: str, rounds: int = 40) -> Config:
    return Config.of(compose("fedmf", rounds=rounds, set=[*FALLS, *sets]))


def test_a_run_ends_when_validation_no_longer_improves(tmp_path: Path) -> None:
    whole = run(config_of(), tmp_path / "whole")
    early = run(config_of("run.patience=6"), tmp_path / "early")
    assert whole["rounds"] == 40 and early["rounds"] == early["round"] + 6 < 40
    lines = (tmp_path / "early" / "metrics.jsonl").read_text()
    assert (tmp_path / "whole" / "metrics.jsonl").read_text().startswith(lines)


def test_a_stopped_run_ends_in_the_same_round(tmp_path: Path) -> None:
    sets = ["run.patience=6", "run.checkpoint=1", "evaluate.every=3"]
    whole = run(config_of(*sets), tmp_path / "whole")

    def stop(number: int, total: int, row: dict[str, Any]) -> None:
        if number == whole["rounds"] - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config_of(*sets), tmp_path / "stopped", progress=stop)
    again = run(config_of(*sets), tmp_path / "stopped", resume=True)
    assert again["rounds"] == whole["rounds"] < 40 and whole["rounds"] % 3 == 0
    for name in ("model.safetensors", "metrics.jsonl"):
        mine, theirs = (tmp_path / f / name for f in ("stopped", "whole"))
        assert mine.read_bytes() == theirs.read_bytes()


def test_patience_counts_in_the_unit_of_the_rounds() -> None:
    best = {"round": 10, "valid": {}}
    plain = config_of("run.patience=5")
    assert [ends_early(plain, 60, n, best) for n in (14, 15, 16)] == [False, True, True]
    passes = config_of("run.patience=2", 'run.unit="pass"', "run.cohort=20")  # three rounds each
    assert [ends_early(passes, 60, n, best) for n in (15, 16)] == [False, True]
    assert not ends_early(plain, 60, 99, {"round": 10, "test": {}})  # nothing to choose by
    assert not ends_early(config_of(), 60, 99, best)
    with pytest.raises(CoveyError, match="patience at least 0"):
        config_of("run.patience=-1")


class TestDecay(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return Method(MF(4), Bce(), catalogue, Local("sgd", 0.5, 2, decay=0.05))

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        parts = (MF(4), Bce(), catalogue)
        return Method(*parts, Local("sgd", 0.5, decay=0.0)), Method(*parts, Local("sgd", 0.5))


def test_decay_on_numbers_worked_by_hand() -> None:
    """A step of SGD takes 2 lr decay u off a vector, and 2 lr decay v / R off each of R rows."""
    suite, vectors, rows = TestDecay(), {}, {}
    for decay in (0.0, 0.25):
        world = suite.world()
        solver = Local("sgd", 0.1, 1, decay=decay)
        method = Method(MF(4), Bce(), world.catalogue, solver)
        play = Play(method, world, suite.setting(cohort=len(world.data.training.items)))
        first = play.begin().fleet.private(torch.tensor([5]))
        ((_, before),) = first
        start, table = before["user"].clone(), play.server.public["items"].clone()
        play.go(1)
        ((_, after),) = play.fleet.private(torch.tensor([5]))
        vectors[decay], rows[decay] = after["user"], play.server.public["items"]
    moved = vectors[0.0] - vectors[0.25]
    torch.testing.assert_close(moved, 2 * 0.1 * 0.25 * start, rtol=1e-4, atol=1e-7)
    shorter = rows[0.25].norm(dim=1) < rows[0.0].norm(dim=1)
    assert float(shorter.float().mean()) > 0.9 and not torch.equal(rows[0.25], table)
    with pytest.raises(AssertionError):
        expect_same(rows[0.0], rows[0.25])


def test_evaluation_may_be_counted_in_passes(tmp_path: Path) -> None:
    """60 clients in cohorts of 20 are a pass of 3 rounds; the last round is always measured."""
    passes = ["run.cohort=20", 'evaluate.unit="pass"', "evaluate.every=2"]
    run(config_of(*passes, rounds=14), tmp_path / "run")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [6, 12, 14]
    with pytest.raises(CoveyError, match=r"evaluate\.unit"):
        config_of('evaluate.unit="epoch"')

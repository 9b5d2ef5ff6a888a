"""The loops over sequence clients compute what the engine computes."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from bench_sequence import NAMES, GruNet, Loop, SasNet, same_work
from common import Engine, config_of

TINY = ("data.users=20", "data.items=150", "data.mean_items=12", "model.dropout=0.0")


@pytest.mark.parametrize("model", NAMES)
def test_the_loops_and_the_engine_agree(model: str) -> None:
    engine = Engine.of(
        config_of("fedcl-plain", "loo-full", f"model.use={NAMES[model]}", *TINY)
    ).double()
    training = engine.fleet.data.training
    lists = list(training.items.values.split(training.items.lengths.tolist()))
    loop = Loop((GruNet if model == "gru" else SasNet)(engine.server.public), lists, 150, 200, 10)
    ids_C = engine.stratified(0)
    assert same_work(engine, loop, ids_C) == pytest.approx(1.0, abs=1e-6)
    torch.testing.assert_close(
        loop.net.items.data, engine.server.public["items"], rtol=0, atol=1e-6
    )  # type: ignore[operator]


def test_both_loops_are_the_same_round() -> None:
    engine = Engine.of(config_of("fedcl-plain", "loo-full", *TINY[:-1])).double()
    training = engine.fleet.data.training
    lists = list(training.items.values.split(training.items.lengths.tolist()))
    made = []
    for name in ("round", "plain_round"):
        torch.manual_seed(0)
        loop = Loop(GruNet(engine.server.public), lists, 150, 200, 10)
        getattr(loop, name)(list(range(20)))
        made.append(loop.net.items.data)
    torch.testing.assert_close(*made, rtol=0, atol=1e-6)

"""The ranking benchmark: both sides find the same, and it notices where they do not."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from bench_ranking import DATASET, loop_of, measure, same_figures
from common import Engine, config_of

TINY = ("data.name=synthetic", "data.users=60", "data.items=400", "data.mean_items=9")


def test_both_sides_find_the_same() -> None:
    found = measure(DATASET, 40, 1, *TINY)
    assert (found["users"], found["items"], found["sample"]) == (60, 400, 40)
    assert all(0 < x < 1 for part in found["hit and NDCG, validation and test"] for x in part)
    assert found["peak_gib"] > 0 and found["times the loop"] > 0


def test_a_difference_is_noticed() -> None:
    engine = Engine.of(config_of("fedmf", "loo-full", *TINY, "model.dim=64"))
    ids_C = engine.stratified(0)
    theirs = loop_of(engine, ids_C)()
    engine.fleet.store.dense["user"] = torch.randn_like(engine.fleet.store.dense["user"])
    with pytest.raises(AssertionError):
        same_figures(engine.evaluate(ids_C), theirs)

"""Memory for clients' tables: in RAM, in a file, or an error before a run starts."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from covey.contract.model import Model
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue
from covey.engine.client.blocks import Engine
from covey.engine.fleet.memory import allocate, check_memory, limit_of, memory_of
from covey.engine.method import Method
from covey.methods.gpfedrec import GraphPull, UserGraph
from covey.models.mf import MF
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.run import assemble
from covey.run.config.schema import Config
from covey.run.config.shipped import read
from covey.run.config.tree import assign
from covey.run.loop import run
from covey.solvers import Local

SMALL = [
    "data.users=40",
    "data.items=60",
    "data.mean_items=8",
    "run.rounds=2",
    "run.ceilings=[]",
    "model.dim=8",
]


def test_in_memory_or_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    like = torch.zeros(1, dtype=torch.float64)
    for limit in (800, 799):
        made = allocate((10, 5, 2), like, limit, zero=True)
        assert made.shape == (10, 5, 2) and made.dtype == torch.float64 and not bool(made.any())
        made[3] = 7.0
        assert float(made.sum()) == 70.0
    assert not list(tmp_path.iterdir())  # a file without a name


def test_a_run_is_the_same_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for limit in (1 << 62, 0):
        monkeypatch.setattr("covey.engine.fleet.hosted.limit_of", lambda engine, limit=limit: limit)
        tree = assign(read("methods", "cofedrec"), [*SMALL, "grouping.categories=4"])
        run(Config.of(tree), tmp_path / str(limit))
        results.append((tmp_path / str(limit) / "state.safetensors").read_bytes())
    assert results[0] == results[1]


def test_limits() -> None:
    assert limit_of(Engine(tables_mb=3)) == 3_000_000
    assert limit_of(Engine(device="cuda", tables_mb=3)) > 1 << 50
    assert 0 < limit_of(Engine()) <= memory_of("cpu") // 4
    with pytest.raises(CoveyError, match="tables_mb"):
        Engine(tables_mb=-1)


def test_what_cannot_fit_is_refused() -> None:
    def method(model: Model, *parts: Any) -> Method:
        return Method(model, Bce(), Catalogue(1000), Local("sgd"), *parts)

    kept = method(LinearScore(32, keep_items=True))
    check_memory(kept, 1000, 128_000_000, "the CPU")  # just so: 1,000 x 1,000 x 32 x 4
    with pytest.raises(
        CoveyError, match=r"take 0\.1 GiB \(1,000 clients x 1,000 items x 32 numbers\) and the CPU"
    ):
        check_memory(kept, 1000, 127_999_999, "the CPU")
    check_memory(method(MF(32)), 10**9, 1, "the CPU")  # what is shared takes no memory for each
    guided = method(MF(32), (GraphPull(),), UserGraph())
    check_memory(guided, 1000, 512_000_000, "the CPU")
    with pytest.raises(CoveyError, match="128 numbers"):
        check_memory(guided, 1000, 511_999_999, "the CPU")


def test_a_run_that_cannot_fit_says_so_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assemble, "memory_of", lambda device: 70_000)
    with pytest.raises(CoveyError, match=r"lower model\.dim"):
        run(Config.of(assign(read("methods", "cofedrec"), SMALL)), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    run(Config.of(assign(read("methods", "fedmf"), SMALL)), tmp_path / "out")

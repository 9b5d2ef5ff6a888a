"""The loop that CoFedRec is measured against computes what the engine computes."""

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from bench_cofedrec import loop_of, on_cpu, steps_of
from common import Engine, config_of
from covey.core.rng import Rng

TINY = ("data.users=30", "data.items=300", "data.mean_items=12", "grouping.categories=4")


def test_the_loop_and_the_engine_agree() -> None:
    # Lists are shorter than a batch, so that the order of examples does not matter.
    engine = Engine.of(
        config_of("cofedrec", "pfedrec-as-published", *TINY, "solver.batch=4096")
    ).double()
    ids_C = engine.stratified(0)
    engine.round(ids_C)
    loop = loop_of(engine)
    training, objective = engine.fleet.data.training, engine.method.objective
    rng = Rng.of(engine.fleet.seed, 2, torch.arange(len(training.items))).fold("examples")
    made = objective.examples(training.items, training.avoid, engine.method.catalogue.n_items, rng)
    sizes = made.items.lengths.tolist()
    items, label = made.items.values.split(sizes), made.label.double().split(sizes)
    loop.examples = lambda client: (items[client], label[client])  # type: ignore[method-assign]
    sent: list[torch.Tensor] = []
    ask = engine.fleet.ask
    engine.fleet.ask = lambda request: _kept(sent, request.step, ask(request))  # type: ignore[method-assign]
    engine.round(ids_C)
    loop.round(ids_C.tolist())
    assert steps_of(engine, ids_C) == 2 * len(ids_C)
    (table_CID,) = sent
    for client, table_ID in zip(ids_C.tolist(), table_CID):
        torch.testing.assert_close(loop.tables[client], table_ID, rtol=1e-6, atol=1e-6)


def _kept(sent: list[torch.Tensor], step: str, upload: object) -> object:
    sent += [upload.model["items"].clone()] if step == "train" else []  # type: ignore[attr-defined]
    return upload


def test_it_is_measured(monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("bench_cofedrec.source_of", lambda dataset: list(TINY))
    found = on_cpu(8, 2, 1, 16)
    assert found["exact"]["times"] > 0 and found["sampled"]["times"] > 0
    assert "published structure" in capsys.readouterr().out

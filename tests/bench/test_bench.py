"""The benchmark's plain loops compute what the engine computes from the same negatives."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from bench_engine import PLAIN, TOUCHED, loops
from common import Engine, config_of
from covey.core.rng import Rng
from covey.evaluate.metrics import with_held
from plain import Lists, Loop, NcfNet, SampledRanking, ScoreNet, rank_everything

TINY = ("data.users=30", "data.items=300", "data.mean_items=12")


def feed(loop: Loop, engine: Engine, round_number: int) -> None:
    """The engine's own examples, in place of the loop's draws."""
    training, n_items = engine.fleet.data.training, engine.method.catalogue.n_items
    rng = Rng.of(engine.fleet.seed, round_number, torch.arange(len(training.items))).fold(
        "examples"
    )
    made = engine.method.objective.examples(training.items, training.avoid, n_items, rng)
    sizes = made.items.lengths.tolist()
    items, label = made.items.values.split(sizes), made.label.double().split(sizes)
    loop.examples = lambda client: (items[client], label[client])  # type: ignore[method-assign]


@pytest.mark.parametrize("side", [PLAIN, TOUCHED])
@pytest.mark.parametrize(
    ("method", "preset", "net"),
    [("fedncf", "loo-full", NcfNet), ("pfedrec", "pfedrec-as-published", ScoreNet)],
)
def test_the_loop_and_the_engine_agree(
    method: str, preset: str, net: type[NcfNet] | type[ScoreNet], side: str
) -> None:
    # Lists are shorter than PFedRec's batches, so that the order of examples does not matter.
    engine = Engine.of(
        config_of(method, preset, *TINY, "solver.batch=0" if net is NcfNet else "solver.batch=4096")
    )
    loop = loops(engine.double(), net, fused=False)[side]
    ids_C = engine.stratified(0)
    for number in (1, 2):
        feed(loop, engine, number)
        engine.round(ids_C)
        loop.round(ids_C.tolist())
    shared = net.shared_of(engine.server.public)
    for name, value in loop.shared.items():
        torch.testing.assert_close(value, shared[name], rtol=0, atol=1e-9)
    for mine, name in zip(loop.private.values(), ("user",) if net is NcfNet else ("score", "bias")):
        torch.testing.assert_close(
            mine.flatten(1), engine.fleet.store.dense[name], rtol=0, atol=1e-9
        )


def test_rankings_agree() -> None:
    engine = Engine.of(config_of("pfedrec", "pfedrec-as-published", *TINY, "solver.batch=4096"))
    loop = loops(engine.double(), ScoreNet, fused=False)[PLAIN]
    held, ids_C = engine.fleet.data.held, engine.stratified(0)
    assert held is not None
    lists = [
        with_held(part, held.candidates[k])
        for k, part in (("valid", held.valid), ("test", held.test))
    ]
    ranking = SampledRanking(loop, lists)
    feed(loop, engine, 1)
    engine.round(ids_C)
    loop.round(ids_C.tolist(), ranking)
    for name, mine in (("hit", ranking.hit), ("ndcg", ranking.ndcg)):
        theirs = engine.evaluate(ids_C)[f"test/{name}@10"]
        there = ~theirs.isnan()
        torch.testing.assert_close(
            torch.tensor(mine).double()[there], theirs[there].double(), rtol=0, atol=1e-6
        )


def test_full_rankings_agree() -> None:
    engine = Engine.of(config_of("fedmf", "ratio-full", *TINY))
    held, cut = (
        engine.fleet.data.held,
        lambda lists: [torch.from_numpy(x) for x in Lists.cut(lists)],
    )
    assert held is not None
    table, user = engine.server.public["items"], engine.fleet.store.dense["user"]
    train = cut(engine.fleet.data.training.items)
    theirs = engine.evaluate(engine.stratified(0))
    mine = rank_everything(table, user, train, [cut(held.valid), cut(held.test)], 20)
    for p, part in enumerate(("valid", "test")):
        for m, metric in enumerate(("recall@20", "ndcg@20")):
            assert float(mine[p, m]) == pytest.approx(float(theirs[f"{part}/{metric}"].nanmean()))

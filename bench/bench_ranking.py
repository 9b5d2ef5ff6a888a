"""Full-rank evaluation of 40,226 users among 54,542 items: time against a loop, and memory.

All users are evaluated once, as in a run (hit and NDCG at 5 and 10, validation and test, seen items
hidden), and the peak memory of the process is noted, data and libraries included. Then both sides
rank a sample of the users in turn, with one thread each; the loop scores all items of a user by one
product, hides seen items and takes the ten best, twice. COVEY_DATA=folder measures on the dataset
of that size. Nothing is written without --out.
"""

import argparse
import json
import os
import resource
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor

from common import Engine, commit, config_of, cpu_seconds, interleaved, machine, say, source_of
from covey.core.ragged import Fields
from plain import Lists, rank_everything

DATASET, D, DEPTH = "amazon-beauty-bert4rec", 64, 10
TARGET = {"times the loop": 3.0, "peak_gib": 2.0}
LOOP = "plain loop"


def likely(engine: Engine) -> None:
    """User vectors near those of held-out items, so that there is something to find."""
    held, table_ID = engine.fleet.data.held, engine.server.public["items"]
    assert held is not None
    near_ND = sum(table_ID[part.padded(1)[:, 0]] for part in (held.valid, held.test))
    noise_ND = torch.randn(len(held.test), D, generator=torch.Generator().manual_seed(0))
    engine.fleet.store.dense["user"] = near_ND + 2 * table_ID.std() * noise_ND


def loop_of(engine: Engine, ids_C: Tensor) -> partial[Tensor]:
    """The same users ranked one by one."""
    held, train = engine.fleet.data.held, engine.fleet.data.training.items
    assert held is not None
    own, *parts = (
        [torch.from_numpy(x) for x in Lists.cut(lists.take(ids_C))]
        for lists in (train, held.valid, held.test)
    )
    users_ND, table_ID = engine.fleet.store.dense["user"][ids_C], engine.server.public["items"]
    return partial(rank_everything, table_ID, users_ND, own, parts, DEPTH)


def same_figures(found: Fields, theirs: Tensor) -> list[list[float]]:
    """Hit rate and NDCG of validation and test, once both sides agree."""
    mine = [
        [float(found[f"{p}/{m}@{DEPTH}"].nanmean()) for m in ("hit", "ndcg")]
        for p in ("valid", "test")
    ]
    torch.testing.assert_close(torch.tensor(mine, dtype=torch.float64), theirs, rtol=2e-3, atol=0)
    return mine


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(dataset: str, sample: int, repeats: int, *assignments: str) -> dict[str, Any]:
    config = config_of("fedmf", "loo-full", *source_of(dataset), f"model.dim={D}", *assignments)
    engine = Engine.of(config)
    likely(engine)
    everybody, ids_C = engine.stratified(0), engine.stratified(sample)
    before = peak_gib()
    whole = cpu_seconds(lambda: engine.evaluate(everybody))
    after = peak_gib()
    loop = loop_of(engine, ids_C)
    figures = same_figures(engine.evaluate(ids_C), loop())
    times = interleaved({"covey": lambda: engine.evaluate(ids_C), LOOP: loop}, repeats)
    return {
        "data": config.data.name,
        "users": len(everybody),
        "items": engine.method.catalogue.n_items,
        "dim": D,
        "cpu_seconds of everybody": whole,
        "peak_gib": after,
        "peak_gib before": before,
        "sample": len(ids_C),
        "times the loop": times.times(LOOP),
        "of single repeats": times.spread(LOOP),
        "microseconds per user": {k: times.median(k) / len(ids_C) * 1e6 for k in times.seconds},
        "cpu_seconds": times.seconds,
        "hit and NDCG, validation and test": figures,
        "target": TARGET,
        "reached": times.times(LOOP) >= TARGET["times the loop"] and after <= TARGET["peak_gib"],
        "config": config.tree,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sample", type=int, default=4096, help="users that both sides rank in turn"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--quick", action="store_true", help="fewer users in the sample, two repeats"
    )
    parser.add_argument(
        "--out", type=Path, help="file to write, such as results/bench-ranking.json"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    say("... everybody once, then a sample on both sides")
    found = measure(
        DATASET, 512 if asked.quick else asked.sample, 2 if asked.quick else asked.repeats
    )
    print({k: v for k, v in found.items() if k != "config"})
    if asked.out:
        asked.out.write_text(
            json.dumps({"commit": commit(), "machine": machine(), **found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()

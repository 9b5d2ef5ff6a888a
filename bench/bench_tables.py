"""CoFedRec without its contrast: clients' tables stored whole, or as differences; the same bits.

A difference is the last table handed out and the client's own rows. Each side runs in a separate
process, which reports its peak memory and its CPU seconds a round. COVEY_DATA=folder has the
datasets.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import zlib
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from common import Engine, commit, config_of, machine, write
from covey.engine.fleet.simulated import SimulatedFleet

LASTFM = ("solver.lr=0.05", "solver.rates.items=4.0", "grouping.categories=500")
DATA: dict[str, tuple[str, ...]] = {"ml-100k": (), "lastfm-2k": LASTFM}


def one(dataset: str, kind: str, rounds: int) -> dict[str, Any]:
    """This process's side."""
    torch.set_num_threads(1)
    if kind == "whole":
        SimulatedFleet._sparse = lambda self: frozenset()  # type: ignore[method-assign]
    sets = [f"data.name={dataset}", "mechanism.0.weight=0.0", *DATA[dataset]]
    engine = Engine.of(config_of("cofedrec", "pfedrec-as-published", *sets))
    store, held, spent = engine.fleet.store, [], []
    for _ in range(rounds):
        began = time.process_time()
        engine.round(engine.fleet.ids_N)
        spent.append(time.process_time() - began)
        held.append(sum(d.bytes() for d in store.deltas.values()) or store.dense["items"].nbytes)
    public = zlib.crc32(engine.server.public["items"].numpy().tobytes())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"held": held, "cpu_seconds": spent, "peak": peak, "public": public}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--quick", action="store_true", help="one round of the smaller dataset; nothing is written"
    )
    parser.add_argument("--side", nargs=2, metavar=("DATASET", "KIND"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    rounds = 1 if asked.quick else asked.rounds
    if asked.side:
        print(json.dumps(one(*asked.side, rounds)))
        return
    if "COVEY_DATA" not in os.environ:
        print("COVEY_DATA says where the datasets are; nothing measured")
        return
    found: dict[str, Any] = {}
    for dataset in list(DATA)[: 1 if asked.quick else None]:
        sides = {}
        for kind in ("whole", "rows"):
            words = [sys.executable, __file__, "--rounds", str(rounds), "--side", dataset, kind]
            sides[kind] = json.loads(
                subprocess.run(words, capture_output=True, text=True, check=True).stdout
            )
        assert sides["whole"]["public"] == sides["rows"]["public"], (
            "both ways must give the same bits"
        )
        found[dataset] = sides
        print(
            dataset,
            {kind: (max(s["held"]), s["peak"], s["cpu_seconds"]) for kind, s in sides.items()},
            flush=True,
        )
    if not asked.quick:
        print(write("bench-tables", {"commit": commit(), "machine": machine(), "data": found}).name)


if __name__ == "__main__":
    main()

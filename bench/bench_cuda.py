"""Rounds, passes and sums on a GPU, in wall time, without evaluation.

A pass trains every client once, 256 clients a round, with the server's work in between: Ward and
the pool of FedCL, the auxiliary model of PDC-FRS. The sums are those of a million synthetic users
with 20 of 100,000 items, at rank 64. COVEY_DATA=folder measures on MovieLens-1M itself.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from common import Engine, config_of, say, source_of, write
from covey.contract.views import ServerView
from covey.core import provenance
from covey.core.messages import Round
from covey.engine.rounds import run_round, view
from covey.run.schedule import batches_of, cohort

CUDA = 'engine.device="cuda"'
SASREC = ('model.use="covey.models.sasrec:SASRec"', "model.dim=64")
MILLION = (
    "data.name=synthetic",
    "data.users=1000000",
    "data.items=100000",
    "data.mean_items=20",
    "model.rank=64",
)
AUXILIARY = "contribution"


def seconds_of(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def rounds_of(engine: Engine, many: int) -> list[float]:
    """Seconds of each round, as a run asks for its clients."""

    def one() -> None:
        engine.number += 1
        who = cohort(engine.config, engine.fleet.ids_N, engine.number)
        engine.server, _ = run_round(engine.server, engine.fleet, engine.method, who)

    return [seconds_of(one) for _ in range(many)]


def passes_of(engine: Engine, many: int) -> list[float]:
    batches = batches_of(engine.config, len(engine.fleet.ids_N))
    return [sum(rounds_of(engine, batches)) for _ in range(many)]


def auxiliary_of(engine: Engine) -> float:
    """Times the server of PDC-FRS in a pass: training its model and picking items for clients."""
    ids_C = engine.fleet.ids_N
    part = next(m for m in engine.method.mechanisms if m.name == AUXILIARY)

    def see(who: Tensor) -> ServerView:
        return view(engine.server, engine.method, AUXILIARY, Round(engine.number + 1, who))

    def learn() -> None:
        memory = part.begin_round(see(ids_C))
        engine.server = replace(engine.server, state={**engine.server.state, AUXILIARY: memory})

    def recommend() -> None:
        for some in ids_C.split(256):
            part.send(see(some))

    return seconds_of(learn) + seconds_of(recommend)


def sasrec() -> dict[str, Any]:
    engine = Engine.of(config_of("fedcl", "loo-full", *source_of("ml-1m"), *SASREC, CUDA))
    return {"seconds": passes_of(engine, 4), "at most": 5.0}


def pdc() -> dict[str, Any]:
    engine = Engine.of(config_of("pdc-frs", "ratio-full", *source_of("ml-1m"), CUDA))
    whole = passes_of(engine, 4)
    server = [auxiliary_of(engine) for _ in range(4)]
    clients = statistics.median(whole[1:]) - statistics.median(server[1:])
    return {"seconds": server, "at most": clients, "whole passes": whole}


def fedncf() -> dict[str, Any]:
    engine = Engine.of(
        config_of(
            "fedncf", "ratio-full", *source_of("ml-1m"), "run.cohort=0", "run.unit=round", CUDA
        )
    )
    return {"seconds": rounds_of(engine, 8), "at most": 0.15}


def sums() -> dict[str, Any]:
    engine = Engine.of(config_of("spectral", "ratio-full", *MILLION, CUDA))
    return {"seconds": rounds_of(engine, 4), "at most": 20.0}


CASES = {
    "FedNCF on ML-1M: a round of everybody, 5 local epochs": fedncf,
    "FedCL with SASRec on ML-1M: a pass": sasrec,
    "PDC-FRS on ML-1M: the auxiliary model's part of a pass, at most the clients'": pdc,
    "spectral, a million users: a sum": sums,
}


def measured(case: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    torch.cuda.reset_peak_memory_stats()
    found = case()
    usual = statistics.median(found["seconds"][1:])  # the first loads kernels
    reached = usual <= found["at most"]
    return {
        **found,
        "median": usual,
        "reached": reached,
        "gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="?", default="", help="a part of a case's name")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device here; nothing measured")
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    cases = {}
    for name, case in CASES.items():
        if asked.only in name:
            cases[name] = measured(case)
            say(f"{name}: {cases[name]['median']:.3f} s, at most {cases[name]['at most']:.2f}")
    if not asked.only:
        about = {"commit": provenance.commit(), "machine": provenance.machine("cuda")}
        print(write("bench-cuda", about | {"cases": cases}).name)


if __name__ == "__main__":
    main()

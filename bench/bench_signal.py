"""What the noise of reports leaves of FedCL's clusters; takes 20 minutes of a CPU.

Plain FedCL without noise is trained for some passes. The reports of its last clustering then get
noise, several times for each budget. The results are how much of the clean clusters is found again
(adjusted Rand index, 0 is chance), and how much of the pool of items from a client's clean cluster
is in the pool that it is sent. Noise alone, without any vector, is the floor of both.
Shape suffixes: N = clients, D = width, K = clusters, I = items.
"""

import argparse
import math
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
from collections.abc import Sequence
from typing import Any

import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from common import Engine, commit, config_of, machine, say, source_of, write
from covey.core.rng import Rng
from covey.engine.rounds import run_round
from covey.methods.clustering import centres, ward
from covey.methods.fedcl import HardNegatives
from covey.run.schedule import cohort

Row = dict[str, Any]
BUDGETS = (1.0, 4.0, 16.0, 64.0, 200.0, 400.0, 1000.0, 4000.0)
PRESET, SETTINGS = (
    "loo-full",
    ("data.min_item=5", "mechanism.0.epsilon=inf", "objective.in_batch=false"),
)


def trained(engine: Engine, passes: int) -> tuple[HardNegatives, Tensor, Tensor]:
    """The mechanism, all reports, clipped but without noise, and the item table to score them."""
    rounds = passes * math.ceil(len(engine.fleet.ids_N) / engine.config.run.cohort)
    for number in range(1, rounds + 2):  # the first of one pass more: everybody has just reported
        engine.server, _ = run_round(
            engine.server,
            engine.fleet,
            engine.method,
            cohort(engine.config, engine.fleet.ids_N, number),
        )
    (part,) = engine.method.mechanisms
    assert isinstance(part, HardNegatives)
    memory = engine.server.state[part.name]
    return part, memory["report"][memory["known"]], engine.server.public["items"]


def pools(part: HardNegatives, said_ND: Tensor, items_ID: Tensor) -> tuple[Tensor, Tensor]:
    """The cluster of each client, [N], and the hard items of each cluster, [K, I] bool."""
    label_N = ward(said_ND, part.clusters)
    score_KI = centres(said_ND, label_N)[1:] @ items_ID.mT
    hard_KI = torch.zeros_like(score_KI, dtype=torch.bool)
    return label_N, hard_KI.scatter_(
        1, score_KI.topk(math.ceil(part.difficulty * len(items_ID)), 1).indices, True
    )


def found(
    part: HardNegatives, report_ND: Tensor, items_ID: Tensor, budgets: Sequence[float], draws: int
) -> list[Row]:
    """Of each budget; 0 stands for noise alone."""
    clean_N, clean_KI = pools(part, report_ND, items_ID)
    rows = []
    for epsilon in budgets:
        rand, kept = [], []
        for draw in range(draws):
            rng = Rng.of(draw, 1, torch.arange(len(report_ND)))
            scale = 2 * part.clip / epsilon if epsilon else 1.0
            vector_ND = report_ND if epsilon else torch.zeros_like(report_ND)
            noisy_N, noisy_KI = pools(
                part, vector_ND + rng.laplace(scale, report_ND.shape[1]), items_ID
            )
            rand.append(float(adjusted_rand_score(clean_N.numpy(), noisy_N.numpy())))
            together_KK = clean_KI.float() @ noisy_KI.float().mT / clean_KI.sum(1, keepdim=True)
            kept.append(float(together_KK[clean_N, noisy_N].mean()))
        rows.append({"epsilon": epsilon, "rand index": rand, "pool kept": kept})
        say(
            f"epsilon {epsilon:6g}: Rand index {statistics.mean(rand):.3f}, of the pool"
            f" {statistics.mean(kept):.3f}"
        )
    return rows


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--dataset", default="ml-1m")
    ask.add_argument("--passes", type=int, default=10)
    ask.add_argument("--draws", type=int, default=5)
    got = ask.parse_args()
    engine = Engine.of(config_of("fedcl", PRESET, *source_of(got.dataset), *SETTINGS))
    part, report_ND, items_ID = trained(engine, got.passes)
    rows = found(part, report_ND, items_ID, (0.0, *BUDGETS), got.draws)
    length, data = (
        float(report_ND.norm(dim=1).mean()),
        engine.config.data.name,
    )  # synthetic where the other is not here
    about = {
        "data": data,
        "clients": len(report_ND),
        "width": report_ND.shape[1],
        "passes": got.passes,
    }
    write(
        "bench-signal",
        {"commit": commit(), "machine": machine(), **about, "mean length": length, "budgets": rows},
    )


if __name__ == "__main__":
    main()

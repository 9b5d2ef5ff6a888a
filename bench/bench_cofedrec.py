"""CoFedRec's round against a loop over clients with the structure of the published code.

The loop is our own: it has a copy of the table and two optimisers per client, and in every batch
the contrast of all items with all items twice, once for the score function, where it has no slope,
and once for the items. Both sides train and evaluate clients spread evenly over the lengths of
lists, from the same state and with the same categories; the loop takes few of them. The comparison
is in CPU seconds of one thread per batch of a client, with all of the round and its evaluation.
COVEY_DATA=folder measures on MovieLens-100K itself. On a GPU only covey is timed, with all clients;
--memory reports the memory of rounds with all clients of MovieLens-1M on a CPU.
"""

import argparse
import os
import resource
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from common import Engine, Times, commit, config_of, interleaved, machine, say, source_of, write
from covey.core import provenance
from covey.core.ragged import Fields
from covey.evaluate.metrics import with_held
from covey.objectives.pairs import Bce
from plain import Lists, Loop, SampledRanking, ScoreNet

PRESET = "pfedrec-as-published"
TARGETS = {"exact": 6, "sampled": 30}
LOOP = "published structure"


def contrast(table_ID: Tensor, category_I: Tensor, tau: float, tau0: float) -> Tensor:
    """Eq. 8 as published, dense, left to autograd."""
    unit_ID = F.normalize(table_ID, dim=1)
    s_II = unit_ID @ unit_ID.T / tau
    s_II = s_II - s_II.max(1, keepdim=True).values.detach()
    other_II = 1 - torch.eye(len(category_I))
    same_II = (category_I[:, None] == category_I).float() * other_II
    log_II = s_II - ((s_II.exp() * other_II).sum(1, keepdim=True) + 1e-6).log()
    return -(tau / tau0) * ((same_II * log_II).sum(1) / (same_II.sum(1) + 1e-6)).mean()


class ContrastLoop(Loop):
    """Each client trains its own whole table; both of its optimisers see the whole loss."""

    def prepare(self, engine: Engine) -> "ContrastLoop":
        part = next(m for m in engine.method.mechanisms if m.name == "item contrast")
        self.weight, self.tau, self.tau0 = part.weight, part.tau, part.tau0
        self.category_I = engine.server.state["co-clusters"]["category"]
        self.tables: dict[int, Tensor] = {}  # of clients that have one of their own by now
        self.start = engine.fleet.store.dense["items"].clone()
        return self

    def train(
        self, client: int, items_L: Tensor, label_L: Tensor, sums: Fields, count_I: Tensor
    ) -> None:
        with torch.no_grad():
            self.params["items.weight"].copy_(self.tables.get(client, self.start[client]))
            self.get(client)
        for _ in range(self.solver.epochs):
            order = torch.randperm(len(items_L))
            for some in order.split(self.solver.batch):
                self._step(items_L[some], label_L[some])
        self.tables[client] = self.params["items.weight"].detach().clone()
        with torch.no_grad():
            self.put(client)

    def _step(self, items_B: Tensor, label_B: Tensor) -> None:
        for optimizer in self.optimizers:
            loss = self.net.loss(self.net.score(self.net.items(items_B)), label_B)
            more = contrast(self.params["items.weight"], self.category_I, self.tau, self.tau0)
            optimizer.zero_grad()
            (loss + self.weight * more).backward()
            optimizer.step()


def ready(*sets: str) -> Engine:
    """After a round: there are categories, and a group that starts alike."""
    engine = Engine.of(config_of("cofedrec", PRESET, *source_of("ml-100k"), *sets))
    engine.round(engine.stratified(0))
    return engine


def loop_of(engine: Engine) -> ContrastLoop:
    training, n_items = engine.fleet.data.training, engine.method.catalogue.n_items
    lists = Lists(Lists.cut(training.items), Lists.cut(training.avoid), n_items)
    dense, solver = engine.fleet.store.dense, engine.method.solver
    assert solver is not None
    private = {
        "affine.weight": dense["score"].clone()[:, None],
        "affine.bias": dense["bias"].clone(),
    }
    net = ScoreNet(n_items).to(dense["items"].dtype)
    made = ContrastLoop(net, lists, solver, {}, private)
    return made.prepare(engine)


def measured(engine: Engine, ids_C: Tensor) -> Callable[[], object]:
    def work() -> None:
        engine.round(ids_C)
        engine.evaluate(ids_C)

    return work


def looped(engine: Engine, ids_C: Tensor) -> Callable[[], object]:
    held, loop = engine.fleet.data.held, loop_of(engine)
    assert held is not None
    lists = [
        with_held(part, held.candidates[k])
        for k, part in (("valid", held.valid), ("test", held.test))
    ]
    ranking = SampledRanking(loop, lists)
    return lambda: loop.round(ids_C.tolist(), ranking)


def steps_of(engine: Engine, ids_C: Tensor) -> int:
    """Batches that these clients take in a round, which is what a round costs."""
    solver, objective = engine.method.solver, engine.method.objective
    assert solver is not None and isinstance(objective, Bce)
    examples_C = engine.lengths_N[ids_C] * (1 + objective.negatives)
    return int((-(-examples_C // solver.batch)).sum()) * solver.epochs


def on_cpu(clients: int, of_loop: int, repeats: int, sample: int) -> dict[str, Any]:
    exact, sampled = ready(), ready(f"mechanism.0.sample={sample}")
    many_C, few_C = exact.stratified(clients), exact.stratified(of_loop)
    sides = {
        "exact": measured(exact, many_C),
        "sampled": measured(sampled, many_C),
        LOOP: looped(exact, few_C),
    }
    steps = {
        "exact": steps_of(exact, many_C),
        "sampled": steps_of(exact, many_C),
        LOOP: steps_of(exact, few_C),
    }
    taken = interleaved(sides, repeats)
    times = Times(
        {side: [s / steps[side] for s in seconds] for side, seconds in taken.seconds.items()}
    )
    out: dict[str, Any] = {
        "clients": [len(many_C), len(few_C)],
        "steps": steps,
        "items in the sample": sample,
    }
    out["cpu_seconds"] = taken.seconds
    for name, least in TARGETS.items():
        ratio, spread = times.times(LOOP, name), times.spread(LOOP, name)
        out[name] = {
            "times": ratio,
            "of single repeats": spread,
            "at least": least,
            "reached": ratio >= least,
        }
        mine, loop = (1000 * times.median(side) for side in (name, LOOP))
        print(
            f"{name}: {ratio:.1f} times the {LOOP} ({spread[0]:.1f} to {spread[1]:.1f}), at least"
            f" {least}; {mine:.1f} ms for {loop:.0f} of a client's batch"
        )
    return out | {"config": exact.config.tree}


def on_gpu(
    dataset: str, most: float, rounds: int, *sets: str, method: str = "cofedrec"
) -> dict[str, Any]:
    """Seconds of a round with everybody, evaluation included."""
    engine = Engine.of(
        config_of(method, PRESET, f"data.name={dataset}", 'engine.device="cuda"', *sets)
    )
    ids_C = engine.fleet.ids_N
    torch.cuda.reset_peak_memory_stats()
    taken = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        engine.round(ids_C)
        engine.evaluate(ids_C)
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    usual = sorted(taken[1:])[(len(taken) - 1) // 2]  # the first has no categories yet
    memory = torch.cuda.max_memory_allocated() / 2**30
    print(
        f"{method} {dataset} {' '.join(sets)}: {usual:.2f} s a round, at most {most}; {memory:.0f}"
        " GiB",
        flush=True,
    )
    told = {
        k: float(v)
        for k, v in engine.server.state[engine.method.grouping.name].items()
        if k.startswith("tell/")
    }
    return {
        "seconds": taken,
        "median": usual,
        "at most": most,
        "reached": usual <= most,
        "gib": memory,
        **told,
    }


def held_on_cpu(sample: int, rounds: int = 2, most: float = 8.0) -> dict[str, Any]:
    """Memory of this process after rounds with all clients and their evaluation.

    The first round has no categories yet.
    """
    engine = Engine.of(
        config_of("cofedrec", PRESET, "data.name=ml-1m", f"mechanism.0.sample={sample}")
    )
    began = time.process_time()
    for _ in range(rounds):
        engine.round(engine.fleet.ids_N)
        engine.evaluate(engine.fleet.ids_N)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    clients, taken = len(engine.fleet.ids_N), time.process_time() - began
    print(
        f"{clients} clients: {peak:.2f} GiB, at most {most:g}; {taken / 60:.0f} CPU minutes for"
        f" {rounds} rounds"
    )
    found = {"clients": clients, "sample": sample, "rounds": rounds, "cpu_seconds": taken}
    return {**found, "gib": peak, "at most": most, "reached": peak <= most}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one repeat, few clients; nothing is written"
    )
    parser.add_argument("--sample", type=int, default=64, help="items that the sampled form draws")
    parser.add_argument("--gpu", action="store_true", help="time rounds on a GPU instead")
    parser.add_argument(
        "--memory",
        type=int,
        metavar="SAMPLE",
        help="memory on a CPU, with so many items; 0: with all",
    )
    asked = parser.parse_args()
    if asked.memory is not None:
        torch.set_num_threads(1)
        name = f"bench-cofedrec-memory{'-sampled' if asked.memory else ''}"
        print(
            write(
                name, {"commit": commit(), "machine": machine(), **held_on_cpu(asked.memory)}
            ).name
        )
        return
    if asked.gpu and not torch.cuda.is_available():
        print("no CUDA device here; nothing measured")
        return
    if asked.gpu:
        torch.backends.cuda.matmul.allow_tf32 = False
        sides = [
            ("ml-100k", 0.8, 6, "cofedrec"),
            ("ml-1m", 3, 4, "gpfedrec"),
            ("ml-1m", 12, 4, "cofedrec"),
        ]
        found = {f"{m} {d}": on_gpu(d, most, n, method=m) for d, most, n, m in sides}
        about = {"commit": provenance.commit(), "machine": provenance.machine("cuda")}
        print(write("bench-cofedrec-cuda", about | found).name)
        return
    torch.set_num_threads(1)
    say("... a round without the contrast comes first")
    result = on_cpu(*((64, 4, 1) if asked.quick else (236, 12, 3)), asked.sample)
    if not asked.quick:
        print(write("bench-cofedrec", {"commit": commit(), "machine": machine(), **result}).name)


if __name__ == "__main__":
    main()

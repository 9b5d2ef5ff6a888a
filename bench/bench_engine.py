"""Covey against a careful plain loop: how many times more clients per CPU second, in one run.

Both sides do whole rounds (negatives, training, aggregation, and evaluation where the workload says
so) for the same clients, in turn, with one thread each. COVEY_DATA=folder measures on the real
datasets.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from common import (
    Engine,
    Times,
    ceilings,
    commit,
    config_of,
    interleaved,
    machine,
    say,
    source_of,
    write,
)
from covey.contract.examples import Batch
from covey.contract.model import Model
from covey.core.ragged import Fields
from covey.core.rng import Rng
from covey.evaluate.metrics import with_held
from covey.objectives.pairs import Bce
from plain import Lists, Loop, NcfNet, SampledRanking, ScoreNet, TouchedLoop, rank_everything

KFLOP_PER_ROW = 9.7  # FedNCF, per distinct row and epoch: forward 3.1, backward 6.2, Adam 0.4
SAME = 0.05  # how far two sides may be apart in work done
TIMES_WITH = "times the plain loop with"
PLAIN, TOUCHED, FUSED = "plain loop", "loop over touched rows", "plain loop, fused optimiser"


@dataclass(frozen=True)
class Options:
    repeats: int = 3
    clients: int = 256  # of a sample
    quick: bool = False


@dataclass
class Row:
    """One line of the table."""

    clients: int
    times: Times
    config: dict[str, Any]
    data: str
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Counted(Bce):
    """Counts what local training looks at: examples, and steps of clients."""

    seen: list[float] = field(
        default_factory=lambda: [0.0, 0.0, 0.0]
    )  # the last: doubles that fill a block up

    def loss(
        self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None
    ) -> Tensor:
        weight_C = batch.weight_CL.sum(1)
        double_C = (
            (batch.items_CR == batch.items_CR[:1])
            .all(1)
            .index_fill(0, torch.zeros(1).long(), False)
        )
        self.seen[2] += float(weight_C[double_C].sum())
        weight_C = weight_C[~double_C]
        self.seen[0] += float(weight_C.sum())
        self.seen[1] += int((weight_C > 0).sum())
        return super().loss(model, params, batch, ready, rng, u)


def loops(
    engine: Engine, net: type[NcfNet] | type[ScoreNet], fused: bool = True
) -> dict[str, Loop]:
    """The loops, each with its own copy of the engine's present state."""
    training, n_items = engine.fleet.data.training, engine.method.catalogue.n_items
    lists = Lists(Lists.cut(training.items), Lists.cut(training.avoid), n_items)
    dense, solver = engine.fleet.store.dense, engine.method.solver
    assert solver is not None
    own = {"user": "user"} if net is NcfNet else {"affine.weight": "score", "affine.bias": "bias"}

    def make(kind: type[Loop], **options: bool) -> Loop:
        private = {
            k: dense[v].clone()[:, None] if k == "affine.weight" else dense[v].clone()
            for k, v in own.items()
        }
        module = net(n_items).to(engine.server.public["items"].dtype)
        return kind(module, lists, solver, net.shared_of(engine.server.public), private, **options)

    return {
        PLAIN: make(Loop),
        TOUCHED: make(TouchedLoop),
        **({FUSED: make(Loop, fused=True)} if fused else {}),
    }


def flat(update: Fields) -> Tensor:
    return torch.cat([update[k].flatten() for k in sorted(update)])


def same_work(engine: Engine, loop: Loop, ids_C: Tensor) -> dict[str, float]:
    """One round of both from the same state: as many examples and steps, and an update alike."""
    counted = Counted(
        **{k: getattr(engine.method.objective, k) for k in ("negatives", "saturating", "reduction")}
    )
    program = engine.fleet.program
    engine.fleet.program = replace(program, objective=counted)
    before = type(loop.net).shared_of(engine.server.public)
    engine.round(ids_C)
    engine.fleet.program = program
    loop.round(ids_C.tolist())
    ours = {k: v - before[k] for k, v in type(loop.net).shared_of(engine.server.public).items()}
    theirs = {k: v - before[k] for k, v in loop.shared.items()}
    phases = len(loop.optimizers)
    notes = {
        "examples": counted.seen[0] / (loop.examples_seen * loop.solver.epochs * phases),
        "steps": counted.seen[1] / (loop.steps_taken * phases),
        "size of update": float(flat(ours).norm() / flat(theirs).norm()),
    }
    # Negatives differ, so the item table is left out, unless it is all there is.
    shared = [k for k in ours if k != "items.weight" or len(ours) == 1]
    mine, loops_own = (flat({k: update[k] for k in shared}) for update in (ours, theirs))
    cosine = float(torch.cosine_similarity(mine, loops_own, 0))
    if any(abs(value - 1) > SAME for value in notes.values()) or cosine < 0.8:
        raise SystemExit(f"the two sides do not do the same work: {notes}, cosine {cosine}")
    doubled = counted.seen[2] / counted.seen[0]
    return {f"covey / loop: {k}": v for k, v in notes.items()} | {
        "cosine of updates": cosine,
        "doubled": doubled,
    }


def fedncf(
    dataset: str, clients: int, options: Options, *assignments: str, fewer: tuple[int, ...] = ()
) -> Row:
    """Times covey on cohorts of `fewer` clients too, as a round has a fixed cost."""
    config = config_of("fedncf", "loo-full", *source_of(dataset), *assignments)
    engine = Engine.of(config)
    ids_C = engine.stratified(options.clients if clients and options.quick else clients)
    others = loops(engine, NcfNet)
    notes = same_work(engine, others[TOUCHED], ids_C)
    notes["distinct rows per client"] = others[TOUCHED].rows_touched / len(ids_C)
    sides: dict[str, Callable[[], object]] = {"covey": partial(engine.round, ids_C)}
    sides |= {name: partial(loop.round, ids_C.tolist()) for name, loop in others.items()}
    for loop in others.values():
        loop.round(ids_C[:2].tolist())
    times = interleaved(sides, options.repeats, (FUSED,))
    for many in fewer:
        mine = interleaved(
            {"covey": partial(engine.round, engine.stratified(many))}, 2 * options.repeats
        )
        notes[f"{TIMES_WITH} {many} clients"] = (
            times.median(PLAIN) / len(ids_C) * many / mine.median("covey")
        )
    return Row(len(ids_C), times, config.tree, config.data.name, notes)


def ncf_100k(options: Options) -> Row:
    return fedncf("ml-100k", 0, options, "solver.epochs=1", "solver.batch=256")


def ncf_1m(options: Options) -> Row:
    return fedncf("ml-1m", 256, options)


def ncf_beauty(options: Options) -> Row:
    return fedncf("beauty", 512, options, fewer=(128, 256))


def pfedrec(options: Options) -> Row:
    config = config_of("pfedrec", "pfedrec-as-published", *source_of("ml-100k"))
    engine = Engine.of(config)
    ids_C, held = engine.stratified(0), engine.fleet.data.held
    assert held is not None
    loop = loops(engine, ScoreNet, fused=False)[PLAIN]
    notes = same_work(engine, loop, ids_C)
    lists = [
        with_held(part, held.candidates[k])
        for k, part in (("valid", held.valid), ("test", held.test))
    ]
    ranking = SampledRanking(loop, lists)
    figures: Fields = {}

    def ours() -> None:
        engine.round(ids_C)
        figures.update(engine.evaluate(ids_C))

    times = interleaved(
        {"covey": ours, PLAIN: lambda: loop.round(ids_C.tolist(), ranking)}, options.repeats
    )
    notes["hit@10 of covey"] = float(figures["test/hit@10"].nanmean())
    last = ranking.hit[-len(ids_C) :]
    notes["hit@10 of the loop"] = sum(last) / len(last)
    return Row(len(ids_C), times, config.tree, config.data.name, notes)


def full_rank(options: Options) -> Row:
    config = config_of("fedmf", "ratio-full", *source_of("ml-1m"))
    engine = Engine.of(config)
    ids_C, held = engine.stratified(0), engine.fleet.data.held
    assert held is not None and len(ids_C) == len(engine.lengths_N)
    train, *parts = (
        [torch.from_numpy(x) for x in Lists.cut(lists)]
        for lists in (engine.fleet.data.training.items, held.valid, held.test)
    )
    table, users = engine.server.public["items"], engine.fleet.store.dense["user"]
    found: dict[str, Any] = {}

    def ours() -> None:
        found["covey"] = engine.evaluate(ids_C)

    def theirs() -> None:
        found["loop"] = rank_everything(table, users, train, parts, 20)

    times = interleaved({"covey": ours, PLAIN: theirs}, options.repeats)
    mine = [
        [float(found["covey"][f"{p}/{m}@20"].nanmean()) for m in ("recall", "ndcg")]
        for p in ("valid", "test")
    ]
    torch.testing.assert_close(
        torch.tensor(mine, dtype=torch.float64), found["loop"], rtol=1e-3, atol=0
    )
    notes = {"recall@20 of covey": mine[1][0], "recall@20 of the loop": float(found["loop"][1, 0])}
    return Row(len(ids_C), times, config.tree, config.data.name, notes)


WORKLOADS: dict[str, tuple[str, float, Callable[[Options], Row]]] = {
    "ncf-ml-100k": ("ml-100k FedNCF, 1 local epoch, batch 256, Adam", 2, ncf_100k),
    "ncf-ml-1m": ("ml-1m FedNCF, 5 full-batch local epochs", 4.5, ncf_1m),
    "ncf-beauty": ("Beauty-sized FedNCF, 5 full-batch local epochs", 150, ncf_beauty),
    "pfedrec-ml-100k": ("ml-100k PFedRec round with evaluation", 3, pfedrec),
    "full-rank-ml-1m": ("full-rank evaluation, ml-1m, MF", 3, full_rank),
}


def record(name: str, row: Row, peak: dict[str, float]) -> dict[str, Any]:
    what, target, _ = WORKLOADS[name]
    sides = row.times.seconds
    low, high = row.times.spread(PLAIN)
    out: dict[str, Any] = {
        "workload": what,
        "data": row.data,
        "clients": row.clients,
        "times the plain loop": row.times.times(PLAIN),
        "of single repeats": [low, high],
        "at least": target,
        "reached": row.times.times(PLAIN) >= target,
        "clients per CPU second": {k: row.clients / row.times.median(k) for k in sides},
        "times the other loops": {
            k: row.times.times(k) for k in sides if k not in ("covey", PLAIN)
        },
        "cpu_seconds": sides,
        "notes": row.notes,
        "config": row.config,
    }
    if name == "ncf-ml-1m":
        rows = row.notes["distinct rows per client"] * row.clients * row.config["solver"]["epochs"]
        useful = rows * KFLOP_PER_ROW * 1e-6 / row.times.median("covey")
        out["useful GFLOP per CPU second"] = useful
        out["share of sgemm"] = useful / next(v for k, v in peak.items() if k.startswith("sgemm"))
    return out


def table(records: dict[str, dict[str, Any]]) -> str:
    lines = [
        f"{'workload':<48} {'data':<10} {'clients':>7} {'covey':>9} {'loop':>9} {'times':>7}"
        f" {'(repeats)':>15} {'at least':>8}  {'touched':>7} {'fused':>7}",
        f"{'':<48} {'':<10} {'':>7} {'clients per CPU second':>19}",
    ]
    for r in records.values():
        rate, low_high = (
            r["clients per CPU second"],
            "({:.1f}-{:.1f})".format(*r["of single repeats"]),
        )
        more = [r["times the other loops"].get(k) for k in (TOUCHED, FUSED)]
        mark = "" if r["reached"] else "  MISSED"
        lines.append(
            f"{r['workload']:<48} {r['data']:<10} {r['clients']:>7} {rate['covey']:>9.0f}"
            f" {rate[PLAIN]:>9.1f} {r['times the plain loop']:>7.1f} {low_high:>15}"
            f" {r['at least']:>8}  "
            + " ".join(f"{x:>7.1f}" if x else f"{'':>7}" for x in more)
            + mark
        )
        lines += [
            f"{'':<48} {k}: {v:.0f}" for k, v in r["notes"].items() if k.startswith(TIMES_WITH)
        ]
        if "share of sgemm" in r:
            useful = f"useful work {r['useful GFLOP per CPU second']:.1f} GFLOP per CPU second"
            lines.append(f"{'':<48} {useful}, {r['share of sgemm']:.0%} of sgemm")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one repeat, fewer clients; nothing is written"
    )
    parser.add_argument("--only", choices=WORKLOADS, help="one workload; nothing is written")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    options = Options(repeats=1, clients=64, quick=True) if asked.quick else Options()
    peak = ceilings()
    records = {}
    for name, (what, _, run) in WORKLOADS.items():
        if asked.only in (None, name):
            say(f"... {what}")
            records[name] = record(name, run(options), peak)
    host = machine()
    print(", ".join(f"{k} {v}" for k, v in host.items()))
    print("ceilings of one core: " + "; ".join(f"{k} {v:.1f}" for k, v in peak.items()))
    print(table(records))
    if not (asked.quick or asked.only):
        result = {
            "commit": commit(),
            "machine": host,
            "ceilings per CPU second": peak,
            "workloads": records,
        }
        print(f"written to {write('bench-engine', result).name}")


if __name__ == "__main__":
    main()

"""The cost of contrast beside FedNCF: a pass over MovieLens-1M, estimated from single rounds.

The rounds' clients are spread over all lengths of lists. All sides run in one process, in turn, in
CPU seconds of one thread. Positives only should take at most 3 times as long as the same FedNCF
without contrast. With --device cuda whole passes are timed instead, 256 clients a round, in wall
time; the full form should take at most 3 seconds on an H200. COVEY_DATA=folder measures on
MovieLens-1M itself.
"""

import argparse
import json
import os
import statistics
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from common import Engine, commit, config_of, interleaved, machine, say, source_of, write
from covey.core.messages import Round
from covey.core.provenance import machine as device
from covey.engine.rounds import run_round
from covey.kernels import onednn
from covey.run.schedule import batches_of, cohort

BASE = "FedNCF"
SIDES: dict[str, tuple[str, ...]] = {
    BASE: ("mechanism=[]",),
    "positives contrasted": ('mechanism.0.items="positives"',),
    "all items contrasted": (),
}
BATCHED = "all items contrasted, products in batches"  # what machines without AVX-512 do
AT_MOST = {"positives contrasted": 3.0}  # times FedNCF
LAST = ", closing the pass"
SECONDS = {"all items contrasted": 3.0}  # a pass on an H200


def engine(sets: tuple[str, ...], name: str = "cpu") -> Engine:
    return Engine.of(
        config_of("cl4fedrec", "ratio-full", *source_of("ml-1m"), *sets, f'engine.device="{name}"')
    )


def on_cpu(clients: int, repeats: int, full: bool) -> dict[str, Any]:
    """Times a round in the middle of a pass, and the one that ends a pass over all clients."""
    plans = {**SIDES, BATCHED: ()} if onednn.available() else SIDES
    sides = {name: engine(sets) for name, sets in plans.items() if full or name in (BASE, *AT_MOST)}
    middle, last = (
        {n: partial(one_round, one, clients, ends, n == BATCHED) for n, one in sides.items()}
        for ends in (False, True)
    )
    for work in middle.values():
        work()  # first calls are slower
    found = interleaved(middle | {name + LAST: work for name, work in last.items()}, repeats)
    rounds = batches_of(sides[BASE].config, len(sides[BASE].fleet.ids_N))
    passes = {
        name: [
            (rounds - 1) * a + b for a, b in zip(found.seconds[name], found.seconds[name + LAST])
        ]
        for name in sides
    }
    ratios = {name: [a / b for a, b in zip(passes[name], passes[BASE])] for name in sides}
    seconds = {name: statistics.median(values) for name, values in passes.items()}
    about = {"clients": clients, "rounds": rounds, "repeats": repeats, "at_most": AT_MOST}
    return about | {"cpu_seconds": seconds, "ratios": ratios}


def one_round(one: Engine, clients: int, last: bool, batched: bool) -> None:
    one.number += 1
    who = Round(one.number, one.stratified(clients), opens_epoch=False, closes_epoch=last)
    with patch.object(onednn, "available", lambda: False) if batched else nullcontext():
        one.server, _ = run_round(one.server, one.fleet, one.method, who)


def on_cuda(name: str, passes: int) -> dict[str, Any]:
    """Seconds of each pass over everybody, without evaluation."""
    out = {}
    for side, sets in SIDES.items():
        one = engine(sets, name)
        torch.cuda.reset_peak_memory_stats()
        seconds, number = [], 0
        for _ in range(passes):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(batches_of(one.config, len(one.fleet.ids_N))):
                number += 1
                who = cohort(one.config, one.fleet.ids_N, number)
                one.server, _ = run_round(one.server, one.fleet, one.method, who)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
            say(f"... {side}: {seconds[-1]:.2f} s")
        out[side] = {"seconds": seconds, "gib": torch.cuda.max_memory_allocated() / 2**30}
    return {"device": device(name), "passes": out, "at_most_seconds": SECONDS}


def table(found: dict[str, Any]) -> str:
    if "passes" in found:
        lines = [f"{'a pass on ' + found['device']:<40} {'seconds':>8} {'GiB':>6}"]
        for name, one in found["passes"].items():
            last = statistics.median(one["seconds"][1:] or one["seconds"])
            missed = "  MISSED" * (last > SECONDS.get(name, last))
            lines.append(f"{name:<40} {last:>8.2f} {one['gib']:>6.1f}{missed}")
        return "\n".join(lines)
    lines = [
        f"{found['rounds']} rounds of {found['clients']} clients:".ljust(40)
        + f" {'CPU s':>8} {'times':>6}"
    ]
    for name, seconds in found["cpu_seconds"].items():
        times = statistics.median(found["ratios"][name])
        missed = "  MISSED" * (times > AT_MOST.get(name, times))
        lines.append(f"{name:<40} {seconds:>8.2f} {times:>6.2f}{missed}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="few clients, once, positives only; nothing is written"
    )
    parser.add_argument(
        "--device", default="cpu", help="cpu, or cuda: whole passes, in seconds of the clock"
    )
    parser.add_argument(
        "--out", type=Path, help="a file for the result, beside results/bench-contrast*.json"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.device == "cpu":
        found = on_cpu(64, 1, full=False) if asked.quick else on_cpu(256, 5, full=True)
    else:
        found = on_cuda(asked.device, 1 if asked.quick else 3)
    result = {"commit": commit(), "machine": machine(), **found}
    print(table(found))
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1) + "\n")
    elif not asked.quick:
        name = "bench-contrast" if asked.device == "cpu" else "bench-contrast-cuda"
        print(f"written to {write(name, result).name}")


if __name__ == "__main__":
    main()

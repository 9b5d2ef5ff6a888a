"""One run on one core and on two: time, CPU seconds and memory of a round and of its evaluation.

Each run is a process of its own, one after the other, so that its peak memory can be read. A round
asks everybody. The CPU seconds of the busiest process are what the wall time of a free machine
would be, so they are compared where the machine is busy.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from common import Engine, commit, config_of, interleaved, machine, say, source_of, write

METHODS = {  # settings beside the number of clients and items
    "fedncf": [],
    "spectral": ["model.rank=64"],
    "fcf": ["model.dim=16"],
}
USERS, ITEMS = 100_000, 5_000
BOUNDS = {"wall": 0.56, "cpu": 1.15, "memory": 0.6}


def memory_of(pid: int | str) -> int:
    """The peak resident memory of a process so far, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def child(method: str, workers: int, users: int, items: int) -> None:
    """Runs rounds and an evaluation; prints what the second round took, of FCF the first one."""
    from covey.contract.fleet import Request
    from covey.core.messages import Download, Round, Sent
    from covey.engine.fleet.simulated import SimulatedFleet
    from covey.engine.rounds import enrol, run_round, start
    from covey.run.assemble import clients_of, method_of, prepare

    sizes = [f"data.users={users}", f"data.items={items}", "data.mean_items=20"]
    config = config_of(method, "loo-full", *sizes, *METHODS[method])
    prepared = prepare(config)
    made = method_of(config, prepared.catalogue)
    clients = clients_of(config, prepared, made)
    fleet = SimulatedFleet.over(clients, workers) if workers > 1 else SimulatedFleet.of(clients)
    del clients, prepared
    server, out = enrol(start(made), fleet, made), {}
    pids = [c.pid for c in getattr(fleet.team, "children", [])]
    out["idle"] = [memory_of(pid) for pid in pids]
    steps = ("round", "evaluation") if method == "fcf" else ("first", "round", "evaluation")
    for number, step in enumerate(steps, 1):
        before = list(fleet.spent) or [0.0] * workers
        wall, cpu = time.perf_counter(), time.process_time()
        if step == "evaluation":
            asked = Request("evaluate", number, fleet.ids_N[: users // 10])
            fleet.ask(replace(asked, download=Download(Sent(dict(server.public)))))
        else:
            server, _ = run_round(server, fleet, made, Round(number, fleet.ids_N))
        spent = [b - a for a, b in zip(before, fleet.spent or [0.0] * workers)]
        mine = time.process_time() - cpu
        wall = time.perf_counter() - wall
        out[step] = {"wall": wall, "cpu": mine + sum(spent), "busiest": max(mine, *spent)}
    out["memory"] = [memory_of("self"), *map(memory_of, pids)]
    fleet.close()
    print(json.dumps(out))


def measured(method: str, workers: int, users: int, items: int) -> dict[str, Any]:
    words = [sys.executable, __file__, "--child", method, str(workers)]
    words += ["--users", str(users), "--items", str(items)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def one_pass(repeats: int = 3) -> dict[str, dict[str, float]]:
    """CPU seconds of two rounds with one gradient per client, added before or after rounding."""
    out = {}
    for method in ("fedncf-adam", "bil", "fedcl", "fcf"):
        engines = {
            str(flag): Engine.of(
                config_of(method, "loo-full", *source_of("ml-100k"), f"engine.one_pass={flag}")
            )
            for flag in ("true", "false")
        }
        asked = {name: engine.stratified(256) for name, engine in engines.items()}

        def rounds(name: str) -> None:
            for _ in range(2):
                engines[name].round(asked[name])  # noqa: B023

        found = interleaved({name: partial(rounds, name) for name in engines}, repeats)
        low, high = found.spread("false", "true")
        row = {"one_pass": found.median("true"), "each": found.median("false")}
        out[method] = row | {"times": found.times("false", "true"), "low": low, "high": high}
    return out


def compared(one: list[dict[str, Any]], two: list[dict[str, Any]], idle: float) -> dict[str, Any]:
    """Ratios of two workers to one, medians over repeats."""

    def median(runs: list[dict[str, Any]], step: str, name: str) -> float:
        return statistics.median(run[step][name] for run in runs)

    out: dict[str, Any] = {}
    for step in ("round", "evaluation"):
        one_cpu = median(one, step, "cpu")
        out[step] = {
            "wall_seconds": [median(runs, step, "wall") for runs in (one, two)],
            "cpu_seconds": [median(runs, step, "cpu") for runs in (one, two)],
            "wall": median(two, step, "wall") / median(one, step, "wall"),
            "cpu": median(two, step, "cpu") / one_cpu,
            "busiest": median(two, step, "busiest") / one_cpu,
        }
    whole = statistics.median(run["memory"][0] for run in one)
    worker = statistics.median(max(run["memory"][1:]) for run in two)
    out["memory_mib"] = {"one": whole / 2**20, "worker": worker / 2**20, "idle": idle / 2**20}
    out["memory"] = worker / whole
    out["memory_above_idle"] = (worker - idle) / (whole - idle)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=USERS, help="another number is not written")
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--child", nargs=2, metavar=("METHOD", "WORKERS"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child[0], int(asked.child[1]), asked.users, asked.items)
        return
    empty = measured("fedncf", 2, 100, 100)  # workers that hold next to nothing
    idle, found = float(max(empty["idle"])), {}
    for method in asked.methods:
        one, two = [], []
        for _ in range(1 if method == "fcf" else asked.repeats):  # its rounds take minutes
            one.append(measured(method, 1, asked.users, asked.items))
            two.append(measured(method, 2, asked.users, asked.items))
        found[method] = compared(one, two, idle)
        say(f"{method}: {json.dumps(found[method])}")
    if asked.users == USERS and set(asked.methods) == set(METHODS):
        about = {"commit": commit(), "machine": machine(), "bounds": BOUNDS}
        about |= {"users": asked.users, "items": asked.items, "load": os.getloadavg()}
        about |= {"one_pass": one_pass()}
        print(f"written to {write('bench-workers', {**about, 'methods': found}).name}")


if __name__ == "__main__":
    main()

"""One round of FedNCF with a million simulated clients on one machine: time and memory of a run.

Every client has 20 of 100,000 items and takes part; 10,000 of them are evaluated. The run is the
`covey run` command in a separate process, so that its memory can be measured: the proportional set
sizes of the command and its workers, added up.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from common import commit, machine, say, write

GIB = 2**30
TARGET = {"peak_gib": 3.0, "minutes": 20.0}


def arguments(users: int, items: int, candidates: str, more: list[str]) -> list[str]:
    settings = [
        "data.name=synthetic",
        f"data.users={users}",
        f"data.items={items}",
        "data.mean_items=20",
        "run.cohort=0",
        "run.unit=round",
        "run.ceilings=[]",
        "evaluate.clients=10000",
        f"evaluate.candidates={candidates}",
        "evaluate.metrics=['hit@10', 'ndcg@10']",
        *more,
    ]
    return [
        "run",
        "--method",
        "fedncf",
        "--rounds",
        "1",
        *(x for s in settings for x in ("--set", s)),
    ]


def watch(pid: int, done: threading.Event, seen: list[tuple[float, float]]) -> None:
    """Memory of the run and its workers, four times a second: (seconds since its start, GiB)."""
    begin = time.perf_counter()
    while not done.wait(0.25):
        family = [pid, *children(pid)]
        seen.append((round(time.perf_counter() - begin, 1), sum(map(proportional, family)) / GIB))


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [int(word) for word in listed.read_text().split()]
    except OSError:
        return []


def proportional(pid: int) -> int:
    """The proportional set size of a process in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def measure(command: list[str], threads: int, limit_gib: float) -> dict[str, Any]:
    """Runs covey with a memory limit; returns its use of resources and its results."""
    limit = int(limit_gib * GIB)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        full = [sys.executable, "-m", "covey", *command, "--out", str(out), "--json"]
        capped = partial(resource.setrlimit, resource.RLIMIT_AS, (limit, limit))
        process = subprocess.Popen(
            full, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=capped
        )
        done, seen = threading.Event(), list[tuple[float, float]]()
        watcher = threading.Thread(target=watch, args=(process.pid, done, seen))
        watcher.start()
        process.communicate()
        done.set()
        watcher.join()
        if process.returncode:
            last = ", ".join(
                f"{gib:.2f} GiB at {second:.0f} s"
                for second, gib in seen[:: max(1, len(seen) // 12)]
            )
            raise SystemExit(f"covey stopped with {process.returncode}; its memory: {last}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = json.loads((out / "result.json").read_text())
        written = sum(p.stat().st_size for p in out.rglob("*") if p.is_file())
    return {
        "wall_seconds": round(time.perf_counter() - begin, 1),
        "cpu_seconds": round(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1
        ),
        "peak_gib": round(max(gib for _, gib in seen), 3),
        "largest_process_gib": round(after.ru_maxrss * 1024 / GIB, 3),
        "run_folder_gib": round(written / GIB, 3),
        "memory_over_time": seen[:: max(1, len(seen) // 60)],
        "test": {k: v for k, v in result.get("test", {}).items() if "/" not in k},
        "traffic": result.get("traffic", {}),
        "config": result["config"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--users", type=int, default=1_000_000, help="another number; nothing is written"
    )
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2], help="cores, one run each")
    parser.add_argument("--candidates", choices=("full", "sampled"), default="full")
    parser.add_argument(
        "--threads", type=int, default=1, help="inside an operation; more than 1 seldom helps"
    )
    parser.add_argument(
        "--limit", type=float, default=8.0, metavar="GIB", help="address space the run may take"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="any option of covey run"
    )
    asked = parser.parse_args()
    say(f"... {asked.users:,} clients, {asked.items:,} items; this takes minutes")
    command = arguments(asked.users, asked.items, asked.candidates, asked.set)
    runs = {}
    for jobs in asked.jobs:
        found = measure([*command, "--jobs", str(jobs)], asked.threads, asked.limit)
        minutes = found["wall_seconds"] / 60
        most = TARGET["peak_gib"] + 0.5 * max(jobs - 2, 0)  # for each further worker
        reached = found["peak_gib"] <= most and minutes <= TARGET["minutes"]
        runs[str(jobs)] = found | {"reached": reached}
        print(
            f"{asked.users:,} clients, one round, {jobs} workers: {found['wall_seconds']:.0f} s"
            f" ({found['cpu_seconds']:.0f} CPU seconds, {asked.users / found['cpu_seconds']:.0f}"
            f" clients per CPU second), peak memory {found['peak_gib']:.2f} GiB in all, run folder"
            f" {found['run_folder_gib']:.2f} GiB; target {'reached' if reached else 'MISSED'}"
        )
    if asked.users == parser.get_default("users"):
        host = machine() | {"threads": asked.threads}
        about = {"commit": commit(), "machine": host, "target": TARGET}
        result = about | runs.pop("1") | {"more": runs}
        print(f"written to {write('bench-million', result).name}")


if __name__ == "__main__":
    main()

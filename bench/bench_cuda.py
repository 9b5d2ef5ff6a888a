"""ML-1M FedNCF on a GPU: 6,040 clients, 5 local epochs, negatives drawn, aggregated; milliseconds a round."""

import json
import sys
import time
from pathlib import Path

import torch

from covey.config import Config, assign, merge, read
from covey.prepare import fleet_of, method_of, prepare
from covey.provenance import commit, machine
from covey.run import cohort
from covey.server import enrol, run_round, start


def main() -> None:
    if not torch.cuda.is_available():
        print("no CUDA device here; nothing measured")
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    tree = merge(read("methods", "fedncf"), read("presets", "ratio-full"))
    sets = ['data.name="ml-1m"', 'engine.device="cuda"', "run.cohort=0", *sys.argv[1:]]
    config = Config.of(assign(tree, sets))
    prepared = prepare(config)
    method = method_of(config, prepared.catalogue)
    fleet = fleet_of(config, prepared, method)
    server = start(method)
    server = enrol(type(server)({k: v.cuda() for k, v in server.public.items()}), fleet, method)
    times = []
    for number in range(1, 9):
        torch.cuda.synchronize()
        began = time.perf_counter()
        server, _ = run_round(server, fleet, method, cohort(config, fleet.ids_N, number))
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    memory = torch.cuda.max_memory_allocated() / 2**30
    best = sorted(times)[len(times) // 2]
    print(f"median {1000 * best:.1f} ms a round, all {[round(1000 * t) for t in times]}, {memory:.1f} GiB")
    out = {"what": __doc__, "median_ms": 1000 * best, "all_ms": [1000 * t for t in times], "gib": memory}
    out |= {"commit": commit(), "machine": machine(), "config": config.tree}
    Path("results").mkdir(exist_ok=True)
    Path("results/bench-cuda.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()

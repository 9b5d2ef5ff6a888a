"""Ward on the reports of all clients, by scipy and without a distance matrix: CPU time and memory.

Reports are like FedCL's at an epsilon of 4: short vectors under large Laplace noise. Each case runs
in a separate process, so that its peak memory can be measured. `--quick` has few reports and writes
nothing.
"""

import argparse
import os
import resource

os.environ.setdefault("OMP_NUM_THREADS", "1")

from multiprocessing import get_context
from typing import Any

import torch

from common import commit, cpu_seconds, machine, say, write
from covey.core.rng import Rng
from covey.methods.clustering import ward, ward_of_many

WIDTH, CLUSTERS = 64, 25
CASES = [(6040, True), (6040, False), (40_226, False)]  # MovieLens-1M twice, Beauty


def reports(many: int) -> torch.Tensor:
    """Vectors of L1 norm 1, and noise of scale 2 / 4 on each number."""
    rng = Rng.server(0, 0, "reports")
    x_ND = rng.normal(many, WIDTH)[0]
    return x_ND / x_ND.abs().sum(1, keepdim=True) + rng.fold("noise").laplace(0.5, many, WIDTH)[0]


def measured(case: tuple[int, bool]) -> dict[str, Any]:
    """CPU seconds of one tree, and by how much it raised the highest memory of its process."""
    torch.set_num_threads(1)
    many, by_scipy = case
    ward(reports(64), 2)  # what is imported and set up once
    x_ND = reports(many)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grow = (lambda: ward(x_ND, CLUSTERS)) if by_scipy else (lambda: ward_of_many(x_ND, CLUSTERS))
    seconds = cpu_seconds(grow)
    gib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    how = "scipy" if by_scipy else "without distances"
    say(f"... {many} reports, {how}: {seconds:.1f} CPU s, {gib:.2f} GiB")
    return {"reports": many, "how": how, "cpu_seconds": seconds, "gib": gib}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few reports; nothing is written")
    quick = parser.parse_args().quick
    cases = [(500, True), (500, False)] if quick else CASES
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        rows = pool.map(measured, cases, chunksize=1)
    if not quick:
        about = {"commit": commit(), "machine": machine(), "width": WIDTH, "clusters": CLUSTERS}
        write("bench-ward", {**about, "rows": rows})


if __name__ == "__main__":
    main()

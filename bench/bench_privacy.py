"""Simulated privacy noise against OpenDP's, which real devices would use.

There are 6,040 vectors of 64 numbers, and choices of items. The library's time is proportional to
the number of draws, so only some of them are timed, and the time is scaled up.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

from common import commit, cpu_seconds, machine, say, write
from covey.core.rng import Rng
from covey.privacy import exponential, gaussian, laplace, library

CLIENTS, WIDTH, ITEMS = 6040, 64, 3706
AT_LEAST = 100  # times the library


def sides(part: int) -> dict[str, tuple[int, Callable[[], object], Callable[[int], object]]]:
    """Of each mechanism how many draws, ours, and the library's of so many."""
    rng, lengths = Rng.of(0, 1, torch.arange(CLIENTS)), torch.full((CLIENTS,), WIDTH)
    score_1I = torch.rand(1, ITEMS, generator=torch.Generator().manual_seed(0))
    scores, none = score_1I[0].double().tolist(), lambda n: [0.0] * n
    return {
        f"Laplace noise, {CLIENTS:,} x {WIDTH}": (
            CLIENTS * WIDTH,
            lambda: laplace.simulated(rng, 1.0, lengths),
            lambda n: library.laplace(none(n), 1.0, 1.0, 1.0),
        ),
        f"Gaussian noise, {CLIENTS:,} x {WIDTH}": (
            CLIENTS * WIDTH,
            lambda: gaussian.simulated(rng, 1.0, lengths),
            lambda n: library.gaussian(none(n), 1.0, 1.0),
        ),
        f"a choice of {ITEMS:,} items for each of {CLIENTS // part:,}": (
            CLIENTS // part,
            lambda: exponential.simulated(
                rng.take(torch.arange(CLIENTS // part)),
                score_1I.expand(CLIENTS // part, -1),
                5.0,
                1.0,
            ),
            lambda n: library.choose(scores, 5.0, 1.0, n),
        ),
    }


def measure(repeats: int, part: int) -> dict[str, Any]:
    out = {}
    for name, (draws, ours, theirs) in sides(part).items():
        say(f"... {name}")
        ours()
        seconds = statistics.median(cpu_seconds(ours) for _ in range(repeats))
        out[name] = {"draws": draws, "cpu_seconds": seconds}
        if find_spec("opendp"):
            some = max(1, draws // part)
            theirs(1)
            out[name] |= {
                "timed": some,
                "library": cpu_seconds(partial(theirs, some)) * draws / some,
            }
            out[name]["times the library"] = out[name]["library"] / seconds
    return {"mechanisms": out}


def table(found: dict[str, Any]) -> str:
    lines = [f"{'mechanism':<48} {'CPU s':>8} {'library':>9} {'times':>7}"]
    for name, r in found["mechanisms"].items():
        theirs = (
            f"{r['library']:>9.2f} {r['times the library']:>7.0f}"
            if "library" in r
            else f"{'':>9} {'':>7}"
        )
        missed = "noise" in name and r.get("times the library", AT_LEAST) < AT_LEAST
        lines.append(f"{name:<48} {r['cpu_seconds']:>8.4f} {theirs}{'  MISSED' * missed}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--part", type=int, default=10, help="one of so many of the library's draws is timed"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one repeat, fewer draws; nothing is written"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if not find_spec("opendp"):
        say(f"OpenDP is not installed, so only our own side is timed; {library.INSTALL}")
    found = measure(1, 100) if asked.quick else measure(7, asked.part)
    print(table(found))
    if not asked.quick:
        write("bench-privacy", {"commit": commit(), "machine": machine(), **found})


if __name__ == "__main__":
    main()

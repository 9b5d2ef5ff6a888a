"""PDC-FRS: the contribution against single draws, and the auxiliary model against the clients.

The loop adds Gumbel noise to the scores of one item and takes the largest, once for each draw; it
takes few draws, and the comparison is in CPU seconds of one thread per draw. Ours includes the
distribution functions of all items, but not the vectors of the titles, which both need. A pass of
the auxiliary model is its training and the best items of the clients; the clients' pass is their
training on what they received. With --quick there are only some clients, spread evenly over the
lengths of lists, and the auxiliary model trains on their lists. COVEY_DATA=folder measures on
MovieLens-1M itself.
"""

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from common import Engine, commit, config_of, interleaved, machine, source_of, write
from covey.contract.fleet import Request
from covey.contract.mechanism import Mechanism
from covey.core.messages import Download, Round, Sent
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.rounds import view
from covey.methods.pdc_frs_draws import perturbed
from covey.methods.titles import Likeness, likeness

CONTRIBUTION, AUXILIARY = (
    100,
    1.0,
)  # at least so many times as fast; at most so many times the seconds
NAME = "contribution"


def gumbel(items_T: Tensor, like: Likeness, epsilon: float) -> Tensor:
    """A draw at a time: the greatest of the scores with noise."""
    out_T = torch.empty_like(items_T)
    for at, item in enumerate(items_T):
        score_I = epsilon / (2 * like.sensitivity) * like.rows(item[None])[0]
        noise_I = -torch.empty_like(score_I).exponential_().log()
        out_T[at] = (score_I + noise_I).argmax()
    return out_T


def contribution(engine: Engine, draws: int, of_loop: int, repeats: int) -> dict[str, Any]:
    """Draws for items as often as they stand in the lists."""
    catalogue = engine.method.catalogue
    like = likeness(catalogue.titles, catalogue.n_items)
    own_T = engine.fleet.data.training.items.values
    pick_T = Rng.of(0, 0, torch.arange(1)).integers(len(own_T), draws)[0]
    items_T, unit_T = own_T[pick_T], Rng.of(0, 1, torch.arange(1)).uniform(draws)[0]
    sides = {
        "ours": lambda: perturbed(items_T, unit_T, like, 5.0),
        "gumbel": lambda: gumbel(items_T[:of_loop], like, 5.0),
    }
    taken = interleaved(sides, repeats).seconds
    each = {
        side: statistics.median(taken[side]) / many
        for side, many in (("ours", draws), ("gumbel", of_loop))
    }
    ratio = each["gumbel"] / each["ours"]
    print(
        f"contribution of {draws:,} items over {like.n_items:,}: {draws * each['ours']:.2f} s,"
        f" {ratio:.0f} times"
    )
    reached = {"times": ratio, "at least": CONTRIBUTION, "reached": ratio >= CONTRIBUTION}
    return {"draws": [draws, of_loop], "cpu_seconds": taken, **reached}


def part_of(engine: Engine) -> Mechanism:
    return next(m for m in engine.method.mechanisms if m.name == NAME)


def only(engine: Engine, ids_C: Tensor) -> Engine:
    """The server as if only these clients had contributed."""
    memory = engine.server.state[NAME]
    lists = Ragged(memory["list"], memory["offsets"]).take(
        ids_C
    )  # everybody contributed, in the order of ids
    less = {**memory, "ids": ids_C, "list": lists.values, "offsets": lists.offsets}
    less["aux/user"] = memory["aux/user"][ids_C]
    engine.server = replace(engine.server, state={**engine.server.state, NAME: less})
    return engine


def auxiliary(engine: Engine, clients: int, repeats: int, cohort: int = 256) -> dict[str, Any]:
    """CPU seconds of one pass of each side."""
    ids_C = engine.stratified(clients)
    part = part_of(only(engine, ids_C))
    seconds: dict[str, list[float]] = {"learns": [], "recommends": [], "clients": []}
    for number in range(1, repeats + 1):
        began = time.process_time()
        memory = part.begin_round(view(engine.server, engine.method, NAME, Round(number, ids_C)))
        seconds["learns"].append(time.process_time() - began)
        engine.server = replace(engine.server, state={**engine.server.state, NAME: memory})
        sends, trains = 0.0, 0.0
        for some in ids_C.split(cohort):
            began = time.process_time()
            sent = part.send(view(engine.server, engine.method, NAME, Round(number, some)))
            between = time.process_time()
            download = Download(Sent(dict(engine.server.public)), {NAME: sent})
            engine.fleet.ask(Request("train", number, some, download, fold=True))
            sends, trains = sends + between - began, trains + time.process_time() - between
        seconds["recommends"].append(sends)
        seconds["clients"].append(trains)
    usual = {side: statistics.median(taken) for side, taken in seconds.items()}
    share = (usual["learns"] + usual["recommends"]) / usual["clients"]
    told = ", ".join(f"{side} {s:.2f} s" for side, s in usual.items())
    print(
        f"a pass of {len(ids_C):,} clients: {told}; the auxiliary model takes {share:.2f} of the"
        " clients' time"
    )
    reached = {"share": share, "at most": AUXILIARY, "reached": share <= AUXILIARY}
    return {"clients": len(ids_C), "cpu_seconds": seconds, **reached, "config": engine.config.tree}


def ready(*sets: str) -> Engine:
    return Engine.of(config_of("pdc-frs", "ratio-full", *source_of("ml-1m"), *sets))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one repeat, fewer draws and clients; nothing is written",
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    engine = ready()
    result = {
        "contribution": contribution(
            engine, *((100_000, 200, 1) if asked.quick else (1_000_000, 2_000, 3))
        )
    }
    result["auxiliary"] = auxiliary(engine, *((200, 1) if asked.quick else (0, 2)))
    if not asked.quick:
        print(write("bench-pdc", {"commit": commit(), "machine": machine(), **result}).name)


if __name__ == "__main__":
    main()

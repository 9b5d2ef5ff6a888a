"""Label recovery from one upload: in clear, from what a server of secure sums holds, by guessing.

FedMF's rows of a client point one way for its items and the other way for its negatives. So the
sign of the top eigenvector separates them, and the smaller side are the items. The result is F1
against the client's list, averaged over clients. The server is given which rows were touched, which
it does not know, and each client's own mask, which it learns.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from common import commit, machine, say, write
from covey.contract.fleet import Request
from covey.contract.views import TrainingData
from covey.core.messages import Catalogue, Download, Sent, Upload
from covey.core.ragged import Ragged, Rows
from covey.core.rng import Rng
from covey.data.split import SplitConfig, pool, split
from covey.data.synthetic import Synthetic, generate
from covey.engine.client.program import LocalData, Program
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.secure import keys, messages
from covey.engine.secure.coordinator import Coordinator
from covey.engine.secure.fixed_point import Fixed, Floats
from covey.engine.secure.layout import Layout, part_of
from covey.engine.secure.party import Party
from covey.engine.secure.settings import FleetConfig
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.solvers import Local

ITEMS, DIM, GUESSES = 60, 8, 20
CONTEXT = messages.context_of(0, 1, "train")


def uploads(clients: int) -> tuple[Upload, Ragged]:
    """Updates of a second round of FedMF, and the clients' lists."""
    rows = split(
        generate(Synthetic(users=clients, items=ITEMS, mean_items=8, groups=4, seed=3)),
        SplitConfig(),
    )
    program = Program(MF(DIM), Bce(negatives=4), Catalogue(ITEMS), Local("adam", lr=0.01, epochs=5))
    fleet = SimulatedFleet(program, LocalData(TrainingData(rows.train, pool(rows, "train"))))
    sent = Download(Sent(dict(program.model.public(ITEMS, Rng.server(0, 0, "public")))))
    fleet.ask(Request("train", 1, fleet.ids_N, sent))
    answers = fleet.ask(Request("train", 2, fleet.ids_N, sent))
    assert isinstance(answers, Upload)
    return answers, rows.train


def summed(upload: Upload, share: float) -> tuple[dict[int, NDArray[Any]], Floats]:
    """What the server holds of each client, without the client's own mask, and the total.

    A share of the clients drop out.
    """
    config, layout = FleetConfig(secure=True), Layout.of(part_of(upload, 0))
    n = len(upload)
    fixed = Fixed(config.bits, config.range, n)
    vectors = [layout.vector(part_of(upload, row)) for row in range(n)]
    gone = set(np.random.default_rng(0).permutation(n)[: int(share * n)].tolist())

    def party(client: int) -> Party:
        return Party(client, CONTEXT, config, lambda _: fixed.encode(vectors[client]))  # type: ignore[arg-type]

    parties, held = {c: party(c) for c in range(n)}, dict[int, NDArray[Any]]()

    def exchange(requests: dict[int, bytes]) -> Iterator[bytes]:
        for client, request in requests.items():
            phase = messages.unframe(request, CONTEXT)[0]
            if phase >= messages.VECTOR and client in gone:
                continue
            reply = parties[client].handle(request)
            if phase == messages.VECTOR:
                body = messages.unframe(reply, CONTEXT)[2]
                y = np.frombuffer(body[-8 * (layout.length + 1) :], "<u8").copy()
                keys.mask(y, parties[client].seed, minus=True)
                held[client] = y[1:].view(np.int64)
            yield reply

    outcome = Coordinator(
        list(parties), CONTEXT, config, layout.length, fixed.dtype, exchange
    ).run()
    return held, fixed.decode(outcome.total, len(outcome.ids))


def f1(items: NDArray[Any], rows: NDArray[Any], true: set[int]) -> float:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-30)
    side = unit @ np.linalg.eigh(unit.T @ unit)[1][:, -1] > 0
    side = ~side if side.sum() * 2 > len(side) else side
    found = set(items[side].tolist())
    return 2 * len(found & true) / max(len(found) + len(true), 1)


def rows_of(vector: NDArray[Any]) -> NDArray[Any]:
    """The item table of a contribution, which follows the weight."""
    return vector[1 : 1 + ITEMS * DIM].reshape(ITEMS, DIM).astype(float)


def measure(clients: int) -> dict[str, Any]:
    upload, lists = uploads(clients)
    held, total = summed(upload, 1 / 3)
    table, rng = upload.update["items"], np.random.default_rng(0)
    assert isinstance(table, Rows)
    found: dict[str, list[float]] = {}
    for client, masked in sorted(held.items()):
        one, true = (
            table.take(torch.tensor([client])),
            set(lists.take(torch.tensor([client])).values.tolist()),
        )
        items = one.items.values.numpy()
        guesses = [f1(items, rng.normal(size=(len(items), DIM)), true) for _ in range(GUESSES)]
        found.setdefault("the upload in clear", []).append(f1(items, one.values.numpy(), true))
        found.setdefault("what the server of a secure sum holds", []).append(
            f1(items, rows_of(masked)[items], true)
        )
        found.setdefault("the sum", []).append(f1(items, rows_of(total)[items], true))
        found.setdefault("guessing", []).append(float(np.mean(guesses)))
    means = {k: float(np.mean(v)) for k, v in found.items()}
    errors = {k: float(np.std(v, ddof=1)) / len(v) ** 0.5 for k, v in found.items()}
    return {"clients": clients, "in the sum": len(held), "f1": means, "standard error": errors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer clients; nothing is written")
    asked = parser.parse_args()
    found = measure(48 if asked.quick else 256)
    for name, value in found["f1"].items():
        say(f"F1 from {name}: {value:.2f}")
    if not asked.quick:
        print(
            "written to"
            f" {write('bench-recovery', {'commit': commit(), 'machine': machine(), **found}).name}"
        )


if __name__ == "__main__":
    main()

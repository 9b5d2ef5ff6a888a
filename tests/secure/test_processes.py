"""Server and clients in separate processes, with a record of all that the server process handled.

The label-recovery audit: the rows of one upload point one way for positives and the other way for
negatives, so the sign of the top eigenvector separates them, and the smaller side is positive.
"""

import json
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey.contract.fleet import Request
from covey.contract.views import TrainingData
from covey.core.messages import Catalogue, Download, Sent, Upload
from covey.core.ragged import Rows
from covey.core.rng import Rng
from covey.data.split import SplitConfig, pool, split
from covey.data.synthetic import Synthetic, generate
from covey.engine.client.program import LocalData, Program
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.secure import keys, messages
from covey.engine.secure.graph import graph_of
from covey.engine.secure.layout import Layout, part_of
from covey.engine.secure.party import KEY, SEED
from covey.engine.secure.settings import FleetConfig
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from secure_hosts import read_record

HOSTS = Path(__file__).parents[1] / "secure_hosts.py"
CLIENTS, ITEMS, DIM = 256, 60, 8
CONTEXT = messages.context_of(5, 1, "train")


@dataclass
class Sum:
    """What is left of a sum when all its processes have ended."""

    folder: Path
    values: np.ndarray
    outcome: dict[str, Any]

    def replies(self, phase: int) -> dict[int, memoryview]:
        """Bodies of what clients sent."""
        received = [
            messages.unframe(m, CONTEXT)
            for which, m in read_record(self.folder / "record.bin")
            if which == b"<"
        ]
        return {client: body for its, client, body in received if its == phase}

    def secrets(self) -> dict[int, tuple[bytes, bytes]]:
        """Of each client, from its own process: the seed of its mask, its mask key."""
        files = [json.loads(p.read_text()) for p in self.folder.glob("secrets-*.json")]
        return {int(c): tuple(bytes.fromhex(x) for x in two) for f in files for c, two in f.items()}  # type: ignore[misc]


def run(
    folder: Path, values: np.ndarray, hosts: int, gone: dict[int, int], config: dict[str, Any]
) -> Sum:
    plan = {"config": config, "run": 5, "round": 1, "length": values.shape[1], "hosts": hosts}
    (folder / "plan.json").write_text(json.dumps({**plan, "clients": len(values), "gone": gone}))
    for number, ids in enumerate(np.array_split(np.arange(len(values)), hosts)):
        np.savez(folder / f"clients-{number}.npz", ids=ids, values=values[ids])
    env = {**os.environ, "SECURE_TEST_KEY": secrets.token_hex(16), "OMP_NUM_THREADS": "1"}

    def start(*args: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(HOSTS), *args]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)

    server = start("server", str(folder))
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    clients = [start("clients", str(folder), str(n), port) for n in range(hosts)]
    for process in (server, *clients):
        process.communicate(timeout=120)
        assert process.returncode == 0
    with np.load(folder / "outcome.npz") as file:
        return Sum(folder, values, {k: file[k] for k in file.files})


@pytest.fixture(scope="module")
def upload() -> Upload:
    """The clients' updates of the second round, as they would leave them in clear."""
    dataset = generate(Synthetic(users=CLIENTS, items=ITEMS, mean_items=8, groups=4, seed=3))
    rows = split(dataset, SplitConfig())
    program = Program(MF(DIM), Bce(negatives=4), Catalogue(ITEMS), Local("adam", lr=0.01, epochs=5))
    fleet = SimulatedFleet(program, LocalData(TrainingData(rows.train, pool(rows, "train"))))
    sent = Download(Sent(dict(program.model.public(ITEMS, Rng.server(0, 0, "public")))))
    fleet.ask(Request("train", 1, fleet.ids_N, sent))
    answers = fleet.ask(Request("train", 2, fleet.ids_N, sent))
    assert isinstance(answers, Upload) and len(answers) == CLIENTS
    return answers


@pytest.fixture(scope="module")
def lists(upload: Upload) -> list[set[int]]:
    dataset = generate(Synthetic(users=CLIENTS, items=ITEMS, mean_items=8, groups=4, seed=3))
    train = split(dataset, SplitConfig()).train
    return [set(train.take(torch.tensor([c])).values.tolist()) for c in range(CLIENTS)]


@pytest.fixture(scope="module")
def summed(upload: Upload, tmp_path_factory: pytest.TempPathFactory) -> Sum:
    """A third of the clients drop out, before they contribute or before they reveal shares."""
    layout = Layout.of(part_of(upload, 0))
    values = np.stack([layout.vector(part_of(upload, row)) for row in range(CLIENTS)])
    lost = np.random.default_rng(0).permutation(CLIENTS)[: CLIENTS // 3].tolist()
    gone = {
        c: (messages.VECTOR, messages.VECTOR, messages.REVEAL)[i % 3] for i, c in enumerate(lost)
    }
    return run(tmp_path_factory.mktemp("sum"), values, 4, gone, {"secure": True})


def left(summed: Sum) -> list[int]:
    gone = json.loads((summed.folder / "plan.json").read_text())["gone"]
    return [c for c in range(CLIENTS) if gone.get(str(c), 9) > messages.VECTOR]


def test_the_total_is_that_of_the_clients_that_were_left(summed: Sum) -> None:
    ids = left(summed)
    assert summed.outcome["ids"].tolist() == ids and len(ids) == CLIENTS - 57
    np.testing.assert_allclose(
        summed.outcome["total"], summed.values[ids].sum(0), rtol=0, atol=1e-9
    )


def test_no_key_that_opens_a_contribution_was_in_the_server_process(summed: Sum) -> None:
    """No share of the mask key of a client in the sum, none of the seed of one outside it."""
    ids, everything = set(left(summed)), (summed.folder / "record.bin").read_bytes()
    for client, (seed, mask_key) in summed.secrets().items():
        assert seed not in everything and mask_key not in everything, client
    holders = graph_of(
        CONTEXT, np.arange(CLIENTS, dtype="<i8").tobytes(), FleetConfig(secure=True)
    ).holders
    revealed = summed.replies(messages.REVEAL)
    assert len(revealed) == CLIENTS - CLIENTS // 3
    for client, body in revealed.items():
        assert [SEED if int(ward) in ids else KEY for ward in holders[client]] == list(
            body[: holders.shape[1]]
        )


def test_the_server_process_reads_no_contribution(
    summed: Sum, upload: Upload, lists: list[set[int]]
) -> None:
    table = upload.update["items"]
    assert isinstance(table, Rows)
    secret, rng = summed.secrets(), np.random.default_rng(0)
    assert [s.path for s in Layout.of(part_of(upload, 0)).slots] == [
        "weight",
        "update/items",
        "touched/items",
    ]

    def rows_of(x: np.ndarray) -> np.ndarray:
        return x[: ITEMS * DIM].reshape(ITEMS, DIM)

    total = rows_of(summed.outcome["total"][1:])
    found: dict[str, list[float]] = {"in clear": [], "masked": [], "guessed": [], "of the sum": []}
    for client, body in summed.replies(messages.VECTOR).items():
        one = table.take(torch.tensor([client]))
        items = one.items.values.numpy()  # suppose the server knew the touched rows
        y = np.frombuffer(body[16:], "<u8").copy()
        keys.mask(
            y, secret[client][0], minus=True
        )  # its own mask, which the server learns in the end
        masked = rows_of(y[2:].view(np.int64).astype(float))  # after the count and the weight
        guesses = [rng.normal(size=(len(items), DIM)) for _ in range(10)]
        for name, tries in zip(
            found, ([one.values.numpy()], [masked[items]], guesses, [total[items]]), strict=True
        ):
            rates = [f1(recovered(items, rows), lists[client]) for rows in tries]
            found[name].append(float(np.mean(rates)))
    score = {name: float(np.mean(scores)) for name, scores in found.items()}
    print("label recovery, F1:", ", ".join(f"{x:.3f} {name}" for name, x in score.items()))
    assert score["in clear"] > 0.95
    more = np.subtract(
        found["masked"], found["guessed"]
    )  # masks come from the device's entropy: no seed repeats them
    assert (
        abs(more.mean()) < 4 * more.std(ddof=1) / len(more) ** 0.5 < 0.15
        and score["of the sum"] < 0.5
    )


def test_every_row_of_every_vector_looks_touched(summed: Sum) -> None:
    for body in summed.replies(messages.VECTOR).values():
        assert (np.frombuffer(body[16:], "<u8") != 0).all()


def recovered(items: np.ndarray, rows: np.ndarray) -> set[int]:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-30)
    side = unit @ np.linalg.eigh(unit.T @ unit)[1][:, -1] > 0
    side = ~side if side.sum() * 2 > len(side) else side
    return set(items[side].tolist())


def f1(found: set[int], true: set[int]) -> float:
    return 2 * len(found & true) / max(len(found) + len(true), 1)


@pytest.mark.parametrize("lost", [2, 3])
def test_a_process_for_each_client(lost: int, tmp_path: Path) -> None:
    """It takes 4 of 6: with two gone the sum is right, with three no share is requested."""
    values = np.random.default_rng(lost).uniform(-1, 1, (6, 20))
    done = run(
        tmp_path,
        values,
        6,
        dict.fromkeys(range(lost), messages.VECTOR),
        {"neighbours": 4, "holders": 6},
    )
    phases = {messages.unframe(m, CONTEXT)[0] for _, m in read_record(tmp_path / "record.bin")}
    if lost == 2:
        np.testing.assert_allclose(done.outcome["total"], values[2:].sum(0), atol=1e-12)
    else:
        why = "3 of 6 clients contributed; a sum needs 4: no mask was opened"
        assert why in str(done.outcome["error"])
        assert "total" not in done.outcome and messages.REVEAL not in phases

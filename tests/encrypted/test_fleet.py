"""Encrypted runs: the rounds of a run in clear, on a server that can read nothing."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from command import SMALL, Covey, expect_line, expect_nothing, sets
from covey import Recommender
from covey.aggregate.combine import Mean, Sum
from covey.aggregate.step import Add
from covey.contract.fleet import Request
from covey.contract.mechanism import Mechanism
from covey.core import CoveyError, Download, Round, Sent
from covey.core.ragged import FieldDict
from covey.core.tensor_file import read as read_tensors
from covey.engine.encrypted.ckks import BadMessage, Secret, pack
from covey.engine.encrypted.fleet import NAME, EncryptedFleet, encrypted, opened
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.fleet.wire import WireFleet
from covey.engine.method import Method
from covey.engine.rounds import Server, enrol, run_round, start
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.objectives.pairs import Bce
from covey.run.checkpoint import FORMATS
from covey.run.config.schema import Config
from covey.run.config.shipped import read
from covey.run.config.tree import assign
from covey.run.loop import run
from covey.solvers import Local
from covey.testing.world import Setting, World, client_half

tenseal = pytest.importorskip("tenseal")
TINY = (*SMALL, "combine.use=covey.aggregate.combine:Sum", "solver.lr=0.002", "evaluate.every=1")
WORLD = World.of(14, 20)


def a_method(**parts: Any) -> Method:
    made: dict[str, Any] = {"combine": Sum(), **parts}
    return Method(MF(4), Bce(), WORLD.catalogue, Local("adam", epochs=2), **made)


@dataclass
class Side:
    """A server and its clients."""

    method: Method
    fleet: Any
    server: Server

    @classmethod
    def of(cls, method: Method, hide: bool, wire: bool = False) -> "Side":
        program = client_half(method, Setting())
        fleet: Any = (WireFleet if wire else SimulatedFleet)(program, WORLD.data)
        server = start(method)
        if hide:
            method, fleet = encrypted(method, fleet, run=3)
            server = fleet.begin(server)
        return cls(method, fleet, enrol(server, fleet, method))

    def go(self, number: int, many: int = 10) -> Tensor:
        ids_C = torch.randperm(14, generator=torch.Generator().manual_seed(number))[:many]
        done = run_round(self.server, self.fleet, self.method, Round(number, ids_C))
        self.server = done[0]
        return done[1].ids_C

    def table(self) -> dict[str, Tensor]:
        devices = getattr(self.fleet, "devices", self.fleet)
        return dict(opened(self.server, devices.agreed, self.method).public)


@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"combine": Mean()},
        {"server_step": Add(0.5)},
        {"combine": Mean(), "server_step": Add(2)},
    ],
)
def test_rounds_equal_those_in_clear(parts: dict[str, Any], wire: bool) -> None:
    """With cohorts smaller than everybody, and clients without an item."""
    clear, hidden = (Side.of(a_method(**parts), hide, wire) for hide in (False, True))
    for number in range(1, 4):
        assert clear.go(number).tolist() == hidden.go(number).tolist()
    torch.testing.assert_close(hidden.table(), clear.table(), rtol=0, atol=2e-6)
    assert not hidden.fleet.devices.meter.dropped


def test_several_parameters_share_ciphertexts() -> None:
    method = replace(a_method(), model=NCF(4, (4, 3)))
    clear, hidden = (Side.of(method, hide) for hide in (False, True))
    clear.go(1), hidden.go(1)
    torch.testing.assert_close(hidden.table(), clear.table(), rtol=0, atol=2e-6)
    assert hidden.fleet.clients.shape[0] == 1 and len(hidden.table()) > 1


def test_the_server_has_ciphertexts_and_the_public_key_only() -> None:
    side = Side.of(a_method(), hide=True)
    side.go(1)
    assert side.server.public.keys() == {NAME} and side.server.public[NAME].dtype == torch.uint8
    assert all(not isinstance(v, Tensor) for part in side.server.state.values() for v in part)
    half = side.fleet.server
    assert not isinstance(half, Secret) and not half.context.has_secret_key()
    message = half.decoded(side.server.public[NAME].numpy().tobytes())
    with pytest.raises(ValueError, match="secret_key"):
        message.blocks[0].decrypt()


def test_steps_on_the_server_never_reach_for_the_secret_half(monkeypatch: Any) -> None:
    side = Side.of(a_method(combine=Mean()), hide=True)
    ids_C = torch.arange(5)
    total = side.fleet.ask(
        Request("train", 1, ids_C, Download(Sent(dict(side.server.public))), fold=True)
    )
    del side.fleet.server, side.fleet.clients  # they are made again when they are needed
    monkeypatch.setattr(EncryptedFleet, "clients", property(lambda self: pytest.fail("read")))
    method = side.method
    update, _ = method.combine.combine(total, (NAME,))
    _, moved = method.server_step.step({}, side.server.public, update)
    assert not torch.equal(moved[NAME], side.server.public[NAME])


def test_traffic_is_that_of_the_ciphertexts() -> None:
    side = Side.of(a_method(), hide=True)
    meter, table = side.fleet.devices.meter, len(side.server.public[NAME])
    assert meter.up == len(side.fleet.server.public) + table and not meter.down
    up = meter.up
    sent: list[int] = []
    decoded = type(side.fleet.server).decoded

    def noted(self: Any, data: bytes, *about: Any) -> Any:
        sent.append(len(data)) if about else None
        return decoded(self, data, *about)

    type(side.fleet.server).decoded = noted
    try:
        side.go(1, many=5)
    finally:
        type(side.fleet.server).decoded = decoded
    assert len(sent) == 5 and meter.up == up + sum(sent) and meter.down == 5 * table
    assert meter.bytes == {("train", "update/items"): sum(sent)}


def faulty(side: Side, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes what arrives of the messages of clients."""
    messages = EncryptedFleet._messages

    def arrives(*about: Any) -> Iterator[tuple[int, bytes]]:
        for place, (client, message) in enumerate(messages(*about)):
            yield client, change(side, place, message)

    monkeypatch.setattr(EncryptedFleet, "_messages", arrives)


def other_key(side: Side, place: int, message: bytes) -> bytes:
    clients = Secret.load(Secret.make(False), side.fleet.like)
    about = (message[20:36], int.from_bytes(message[36:44], "little"))
    return clients.seal(side.fleet.like, *about) if place == 2 else message


CHANGES = {
    "cut off": lambda side, place, message: message[:-100] if place == 2 else message,
    "flipped": lambda side, place, m: m[:999] + bytes([m[999] ^ 1]) + m[1000:] if place == 2 else m,
    "empty": lambda side, place, message: b"" if place == 2 else message,
    "another key": other_key,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_message_that_is_damaged_or_foreign_is_left_out(change: str, monkeypatch: Any) -> None:
    """The rest is the sum of the other clients, and the round goes on."""
    side = Side.of(a_method(combine=Mean()), hide=True)
    if change == "another key":
        side = Side.of(a_method(), hide=True)
    faulty(side, CHANGES[change], monkeypatch)
    assert len(side.go(1)) == 9
    assert side.fleet.devices.meter.dropped == {"malformed": 1}
    assert side.table()["items"].isfinite().all()


def test_a_replayed_message_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    side, first = Side.of(a_method(), hide=True), {}

    def replay(side: Side, place: int, message: bytes) -> bytes:
        return first.setdefault(place, message) if place == 1 else message

    faulty(side, replay, monkeypatch)
    side.go(1)
    assert not side.fleet.devices.meter.dropped
    side.go(2)
    assert side.fleet.devices.meter.dropped == {"malformed": 1}


def test_a_server_that_changes_the_table_is_noticed_by_the_clients() -> None:
    side = Side.of(a_method(), hide=True)
    server = side.fleet.server
    message = server.decoded(side.server.public[NAME].numpy().tobytes())
    made = tenseal.ckks_vector(server.context, [0.25] * 2048)
    side.server = side.server.publish({NAME: pack(server.encoded(message._replace(blocks=[made])))})
    with pytest.raises(BadMessage, match="fail the clients' check"):
        side.go(1)


def test_too_few_for_a_sum() -> None:
    """The round passes without an update: two clients would read each other's."""
    side = Side.of(a_method(), hide=True)
    before = side.server.public[NAME]
    assert not len(side.go(1, many=2))
    assert side.fleet.devices.meter.dropped == {"too few for an encrypted sum": 2}
    assert torch.equal(side.server.public[NAME], before)


def test_updates_out_of_range_are_left_out() -> None:
    method = replace(a_method(), solver=Local("sgd", lr=1e7))
    side = Side.of(method, hide=True)
    side.go(1)
    assert side.fleet.devices.meter.dropped["out of range"] > 0


class Sends(Mechanism):
    name = "sends"

    def send(self, view: Any) -> Sent:
        return Sent({"rows": view.public["items"]})


class Reports(Mechanism):
    name = "reports"
    exchanges = frozenset({"report"})

    def report(self, view: Any) -> FieldDict:
        return {"n": view.data.items.lengths.float()}


class Near(Mechanism):
    """Works on the clients alone."""

    name = "near"

    def loss(self, view: Any) -> Tensor:
        return view.params["items"].square().flatten(1).sum(1)


@pytest.mark.parametrize("part", [Sends(), Reports()])
def test_mechanisms_that_use_the_server_are_refused(part: Mechanism) -> None:
    with pytest.raises(CoveyError, match=f"'{part.name}' cannot run .* use secure sums"):
        Side.of(a_method(mechanisms=(part,)), hide=True)


def test_mechanisms_on_the_clients_are_accepted() -> None:
    clear, hidden = (Side.of(a_method(mechanisms=(Near(),)), hide) for hide in (False, True))
    clear.go(1), hidden.go(1)
    torch.testing.assert_close(hidden.table(), clear.table(), rtol=0, atol=2e-6)


def config(*changes: str) -> Config:
    return Config.of(assign(read("methods", "fedmf"), [*TINY, "fleet.encrypted=true", *changes]))


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        (
            "fedmf",
            ["combine.use=covey.aggregate.combine:ItemMean"],
            "'ItemMean' cannot run .* secure sums",
        ),
        ("fedmf", ["combine.use=covey.defenses.krum:Krum"], "'Krum'"),
        ("fedmf", ['step={use="covey.aggregate.step:Adam"}'], "'Adam'"),
        ("fedmf", ["weighting=examples"], "'weighting = examples'"),
        ("fedmf", ["model.keep_items=true"], "'MF'"),
        ("fedmf", ["fleet.secure=true"], "two ways to hide uploads; set one of them to false"),
        ("fedmf", ["run.cohort=2"], "a secure sum takes at least 3 clients"),
        ("gpfedrec", [], "'UserGraph'"),
        ("spectral", [], "'spectral'"),
        ("fcf", [], "'DecayedAdam'"),
        ("ease", [], "leave out one of them"),
    ],
)
def test_impossible_pairs(
    method: str, changes: list[str], message: str, covey: Covey, tmp_path: Path
) -> None:
    sizes = TINY[:-2] if method == "fedmf" else [s for s in SMALL if not s.startswith("model.")]
    given = sets(*sizes, "fleet.encrypted=true", *changes)
    done = covey("run", "--method", method, *given, "--out", tmp_path / "out")
    expect_line(done, message)
    expect_nothing(tmp_path / "out")


def test_without_the_package(tmp_path: Path) -> None:
    hide = "import sys; sys.modules['tenseal'] = None; from covey.cli.main import main;"
    words = ["run", "--method", "fedmf", *sets(*TINY, "fleet.encrypted=true")]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            hide + "sys.exit(main(sys.argv[1:]))",
            *words,
            "--out",
            str(tmp_path / "out"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    assert "need the tenseal package; pip install 'covey[he]'" in done.stderr
    expect_nothing(tmp_path / "out")


def test_a_run_equals_the_one_in_clear(tmp_path: Path) -> None:
    clear = run(config("fleet.encrypted=false"), tmp_path / "clear")
    hidden = run(config(), tmp_path / "hidden")
    assert hidden["test"] == pytest.approx(clear["test"], abs=1e-3)
    (mine,) = (row for row in hidden["ledger"] if row["step"] != "evaluate")
    assert "ciphertexts only, which any client can decrypt" in mine["what"]
    assert hidden["encrypted"] and hidden["traffic"]["up_bytes"] > 30 * 60_000
    tables = [
        read_tensors(tmp_path / f / "model.safetensors", "covey model 1")[1]
        for f in ("clear", "hidden")
    ]
    torch.testing.assert_close(*tables, rtol=0, atol=1e-5)
    lists = [Recommender.load(tmp_path / f).recommend([3], 5) for f in ("clear", "hidden")]
    assert str(lists[0]) == str(lists[1])


class Killed(Exception):
    pass


def test_killed_and_resumed(tmp_path: Path) -> None:
    """The clients have the same keys afterwards, and the checkpoint's server record no other."""

    def strike(number: int, total: int, row: Any) -> None:
        if number == 2:
            raise Killed

    asked = config("run.rounds=4", "run.checkpoint=1")
    whole = run(asked, tmp_path / "whole")
    out = tmp_path / "killed"
    with pytest.raises(Killed):
        run(asked, out, progress=strike)
    about, flat = read_tensors(out / "checkpoint.safetensors", FORMATS)
    assert about["progress"]["round"] == 1
    assert [k for k in flat if k.startswith("public|")] == [f"public|{NAME}"]
    assert {k for k in flat if "ckks" in k} == {
        "fleet|agreed/ckks/public",
        "fleet|agreed/ckks/private",
    }
    again = run(asked, out, resume=True)
    assert again["test"] == pytest.approx(whole["test"], abs=1e-3)
    size = whole["traffic"]["up_bytes"]
    assert again["traffic"]["up_bytes"] == pytest.approx(size, rel=1e-3)  # compressed
    tables = [
        read_tensors(f / "model.safetensors", "covey model 1")[1] for f in (tmp_path / "whole", out)
    ]
    torch.testing.assert_close(*tables, rtol=0, atol=1e-5)


def test_late_clients_take_part(tmp_path: Path) -> None:
    found = run(config("run.rounds=4", "run.late=0.3"), tmp_path / "out")
    assert not found["traffic"]["dropped"]


def test_a_fleet_without_a_place_for_keys() -> None:
    class Bare:
        pass

    with pytest.raises(CoveyError, match="Bare has no place for keys"):
        encrypted(a_method(), Bare(), 0)

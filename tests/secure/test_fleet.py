"""A fleet of secure sums: the same rounds as in clear, up to rounding, and no single answer."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from command import SMALL, Covey, expect_line, expect_nothing, sets
from covey.aggregate.combine import ItemMean, Mean, Sum
from covey.aggregate.fold import total_of
from covey.contract.fleet import Request
from covey.contract.mechanism import Mechanism
from covey.contract.views import ClientView, ServerView
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Download, Round, Total, Upload
from covey.core.ragged import FieldDict, Ragged, Rows
from covey.defenses.krum import Krum
from covey.engine.fleet.meter import Meter
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.fleet.wire import WireFleet
from covey.engine.method import Method
from covey.engine.rounds import enrol, run_round, start
from covey.engine.secure import fleet as secure_fleet
from covey.engine.secure.fleet import SecureFleet
from covey.engine.secure.party import Party
from covey.engine.secure.settings import FleetConfig
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.run.assemble import method_of
from covey.run.config.schema import Config
from covey.run.config.shipped import read, shipped
from covey.run.config.tree import assign
from covey.run.loop import run
from covey.solvers import Local
from covey.testing.world import Setting, World, client_half

SECURE = FleetConfig(secure=True, neighbours=4, holders=8)


@dataclass
class Given:
    """Devices that answer what a test gives them."""

    upload: Upload
    meter: Meter

    @classmethod
    def of(cls, upload: Upload) -> "Given":
        return cls(upload, Meter(int(upload.ids_C.max()) + 1))

    @property
    def ids_N(self) -> Tensor:
        return self.upload.ids_C

    def ask(self, request: Request) -> Upload | Total:
        some = self.upload.take(torch.isin(self.upload.ids_C, request.ids_C).nonzero()[:, 0])
        self.meter.received(request.step, some)
        return some


def an_upload(n: int = 9) -> Upload:
    """Every kind of field, unequal weights, ids that are no row numbers."""

    def draw(*shape: int) -> Tensor:
        generator = torch.Generator().manual_seed(n)
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    items = Ragged.of([[c % 5, 4 + c % 3] for c in range(n)])
    update: FieldDict = {"items": Rows(items, draw(2 * n, 3), 7), "bias": draw(n, 2)}
    model: FieldDict = {"score": draw(n, 2, 2)}
    extra: dict[str, FieldDict] = {"m": {"counts": torch.arange(3 * n).view(n, 3)}}
    return Upload(torch.arange(n) * 2 + 1, torch.arange(1, n + 1).double(), update, model, extra)


def expect_same_total(one: Total, two: Total, atol: float = 1e-8) -> None:
    assert one.ids_C.tolist() == two.ids_C.tolist()
    same = partial(torch.testing.assert_close, rtol=0, atol=atol)
    same(one.weight, two.weight)
    for mine, other in (
        (one.update, two.update),
        (one.model, two.model),
        (one.touched, two.touched),
        *extras(one, two),
    ):
        assert mine.keys() == other.keys()
        for k in mine:
            same(mine[k], other[k])


def extras(one: Total, two: Total) -> list[tuple[Any, Any]]:
    assert one.extra.keys() == two.extra.keys()
    return [(one.extra[k], two.extra[k]) for k in one.extra]


@pytest.mark.parametrize("masks", [True, False])
def test_the_total_of_every_kind_of_field(masks: bool) -> None:
    upload = an_upload()
    door = SecureFleet(Given.of(upload), replace(SECURE, masks=masks))
    total = door.ask(Request("train", 1, upload.ids_C.flip(0), Download(), fold=True))
    assert isinstance(total, Total)
    want = total_of(upload)
    expect_same_total(total, replace(want, ids_C=want.ids_C.flip(0)))
    assert not door.devices.meter.dropped


def test_masks_change_no_bit() -> None:
    upload = an_upload()
    request = Request("train", 1, upload.ids_C, fold=True)
    one, two = (
        SecureFleet(Given.of(upload), config).ask(request)
        for config in (SECURE, replace(SECURE, masks=False))
    )
    assert isinstance(one, Total) and isinstance(two, Total)
    expect_same_total(one, two, atol=0)


def test_in_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    upload = an_upload()
    whole = SecureFleet(Given.of(upload), SECURE).ask(
        Request("train", 1, upload.ids_C, Download(), fold=True)
    )
    monkeypatch.setattr(secure_fleet, "AT_ONCE", 2)
    parts = SecureFleet(Given.of(upload), SECURE).ask(
        Request("train", 1, upload.ids_C, Download(), fold=True)
    )
    assert isinstance(whole, Total) and isinstance(parts, Total)
    expect_same_total(whole, parts, atol=0)


@pytest.mark.parametrize("masks", [True, False])
def test_out_of_range_and_odd_shapes_are_left_out_and_counted(masks: bool) -> None:
    upload = an_upload()
    upload.update["bias"][4, 0] = 1000.0  # times a weight of 5
    devices = Given.of(upload)
    total = SecureFleet(devices, replace(SECURE, masks=masks)).ask(
        Request("train", 1, upload.ids_C, Download(), fold=True)
    )
    assert isinstance(total, Total) and devices.meter.dropped == {"out of range": 1}
    rest = torch.arange(9) != 4
    expect_same_total(total, total_of(upload.take(rest.nonzero()[:, 0])))


@pytest.mark.parametrize("masks", [True, False])
def test_below_the_threshold_the_total_is_empty_and_the_round_passes(masks: bool) -> None:
    upload = an_upload()
    upload.update["bias"][:5] = float("inf")
    devices = Given.of(upload)
    total = SecureFleet(devices, replace(SECURE, masks=masks)).ask(
        Request("train", 1, upload.ids_C, Download(), fold=True)
    )
    assert isinstance(total, Total) and len(total) == 0 and not total.update
    assert devices.meter.dropped["secure sum failed"] == 9


def test_a_client_contributes_once_a_round() -> None:
    """The difference of two sums with different clients would be one client's part."""
    upload = an_upload()
    door = SecureFleet(Given.of(upload), SECURE)
    door.ask(Request("train", 1, upload.ids_C, Download(), fold=True))
    with pytest.raises(CoveyError, match="summed already; a client contributes once"):
        door.ask(Request("train", 1, upload.ids_C[:-1], Download(), fold=True))
    door.ask(Request("train", 2, upload.ids_C, Download(), fold=True))


def test_single_uploads_and_lists_are_refused() -> None:
    upload = an_upload()
    with pytest.raises(CoveyError, match="single trains were asked for"):
        SecureFleet(Given.of(upload), SECURE).ask(Request("train", 1, upload.ids_C, Download()))
    listed = replace(upload, extra={"m": {"list": Ragged.of([[1]] * 9)}})
    with pytest.raises(CoveyError, match="holds lists, which have no sum"):
        SecureFleet(Given.of(listed), SECURE).ask(
            Request("train", 1, upload.ids_C, Download(), fold=True)
        )


def test_traffic_is_that_of_the_protocol() -> None:
    upload = an_upload()
    door = SecureFleet(Given.of(upload), SECURE)
    door.ask(Request("train", 1, upload.ids_C, Download(), fold=True))
    meter, n, H = door.devices.meter, 9, 8
    numbers = {
        "weight": 1,
        "update/items": 7 * 3 + 7,
        "update/bias": 2,
        "model/score": 4,
        "m/counts": 3,
    }
    assert meter.bytes == {("train", name): 8 * many * n for name, many in numbers.items()}
    assert all(times == 1 for times in meter.most_sends().values())
    head, count, flags = 30, 8, 1
    shares, reveal = H * 144 + 16 * (1 + 2 * H), H * 65
    assert meter.up == n * (
        4 * head + 64 + shares + flags + count + 8 * sum(numbers.values()) + reveal
    )


class Tells(Mechanism):
    name = "tells"
    exchanges = frozenset({"enrol"})


class Reports(Mechanism):
    name = "reports"
    exchanges = frozenset({"report"})

    def report(self, view: ClientView) -> FieldDict:
        return {"n": view.data.items.lengths.float()}


class Filters(Mechanism):
    name = "filters"

    def filter_uploads(self, view: ServerView, upload: Upload) -> Upload:
        return upload


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"combine": Krum()}, "'Krum' reads single uploads"),
        ({"mechanisms": (Filters(),)}, "'filters' reads single uploads"),
        ({"mechanisms": (Reports(),)}, "'reports' reads single reports"),
        ({"mechanisms": (Tells(),)}, "'tells' reads what single clients send when they join"),
    ],
)
def test_the_part_that_cannot_live_with_sums_is_named(parts: dict[str, Any], message: str) -> None:
    method = Method(MF(2), Bce(), Catalogue(7), Local("sgd"), **parts)
    with pytest.raises(
        CoveyError, match=f"{message}, which secure aggregation hides; leave it out"
    ):
        enrol(start(method), SecureFleet(Given.of(an_upload()), SECURE), method)


def test_reports_that_may_be_read_and_updates_that_may_not(tmp_path: Path) -> None:
    """FedCL as in its paper: noisy vectors one by one, gradients by a secure sum."""
    tree = read("methods", "fedcl-ncf")
    sizes = [
        "data.users=24",
        "data.items=80",
        "run.rounds=2",
        "run.ceilings=[]",
        "model.dim=4",
        "fleet.secure=true",
    ]
    with pytest.raises(
        CoveyError, match=r"'fedcl' reads single reports, .* or let them be read by fleet.clear"
    ):
        run(Config.of(assign(tree, sizes)), tmp_path / "no")
    found = run(Config.of(assign(tree, [*sizes, 'fleet.clear=["report"]'])), tmp_path / "yes")
    what = {row["field"]: row["what"] for row in found["ledger"] if row["step"] != "evaluate"}
    assert (
        "the server reads the sum" in what["update/items"] and "the sum" not in what["fedcl/user"]
    )
    assert not found["traffic"]["dropped"]


@pytest.mark.parametrize("combine", [ItemMean(), Mean(), Sum()])
@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize("weighting", ["equal", "examples"])
def test_rounds_equal_those_in_clear(combine: Any, wire: bool, weighting: Any) -> None:
    """Also with a cohort of fewer than the roster, and clients without an item."""
    world = World.of(14, 20)
    method = Method(
        MF(4), Bce(), world.catalogue, Local("adam", epochs=2), combine=combine, weighting=weighting
    )
    program = client_half(method, Setting())
    public = {}
    for secure in (False, True):
        fleet = WireFleet(program, world.data) if wire else SimulatedFleet(program, world.data)
        door = SecureFleet(fleet, SECURE) if secure else fleet
        server = enrol(start(method), door, method)
        for number in range(1, 4):
            ids_C = torch.randperm(14, generator=torch.Generator().manual_seed(number))[:10]
            server, answered = run_round(server, door, method, Round(number, ids_C))
            assert answered.ids_C.tolist() == ids_C.tolist()
        public[secure] = server.public["items"]
    torch.testing.assert_close(public[True], public[False], rtol=1e-5, atol=1e-6)


def test_devices_that_drop_out_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their masks are removed again: the round is that of the other clients."""
    upload, handle = an_upload(), Party.handle

    def lost(party: Party, request: bytes) -> bytes:
        if party.client in (3, 7) and request[5] == 2:
            raise secure_fleet.Absent
        return handle(party, request)

    monkeypatch.setattr(Party, "handle", lost)
    total = SecureFleet(Given.of(upload), SECURE).ask(
        Request("train", 1, upload.ids_C, Download(), fold=True)
    )
    assert isinstance(total, Total)
    rest = torch.tensor([row for row, c in enumerate(upload.ids_C.tolist()) if c not in (3, 7)])
    expect_same_total(total, total_of(upload.take(rest)))


@pytest.mark.parametrize("method", ["fedmf", "spectral"])
def test_a_run_equals_the_one_in_clear(method: str, covey: Covey, tmp_path: Path) -> None:
    sizes = [s for s in SMALL if method == "fedmf" or not s.startswith("model.")]
    sizes += [] if method == "fedmf" else ["model.rank=8"]
    results = {}
    for name, secure in (("clear", "false"), ("hidden", "true")):
        changes = sets(
            *sizes,
            f"fleet.secure={secure}",
            "fleet.neighbours=4",
            "fleet.holders=8",
            "run.ceilings=[]",
        )
        done = covey("run", "--method", method, *changes, "--out", tmp_path / name)
        assert done.code == 0, done
        results[name] = json.loads((tmp_path / name / "result.json").read_text())
    assert results["clear"]["test"] == pytest.approx(results["hidden"]["test"], abs=1e-3)
    mine = {
        row["field"]: row["what"]
        for row in results["hidden"]["ledger"]
        if row["step"] != "evaluate"
    }
    assert mine and all(
        "the server reads the sum over the round's clients only" in what for what in mine.values()
    )
    assert not any("nothing protects" in what or "NOT DECLARED" in what for what in mine.values())


def test_who_joins_late_meets_the_same_server_as_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enrolment, rounds and late enrolment of a run ask through one fleet of sums."""
    asked: list[tuple[SecureFleet, str, int, int]] = []
    ask = SecureFleet.ask

    def noted(self: SecureFleet, request: Request) -> Upload | Total:
        asked.append((self, request.step, request.round, len(request.ids_C)))
        return ask(self, request)

    monkeypatch.setattr(SecureFleet, "ask", noted)
    tree = read("methods", "pdc-frs") | {"method": "pdc-frs"}
    small = ["data.users=60", "data.items=60", "data.mean_items=8", "run.ceilings=[]"]
    late = [
        "run.rounds=4",
        "run.late=0.5",
        "fleet.secure=true",
        "fleet.masks=false",
        'fleet.clear=["enrol"]',
    ]
    run(Config.of(assign(tree, [*small, *late])), tmp_path / "run")
    assert [row[1:] for row in asked if row[1] == "enrol"] == [("enrol", 0, 30), ("enrol", 3, 30)]
    assert {step for _, step, *_ in asked} >= {"enrol", "train"}
    assert len({id(fleet) for fleet, *_ in asked}) == 1


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("cofedrec", [], "reads single uploads, which secure aggregation hides"),
        ("pdc-frs", [], "reads what single clients send when they join"),
        ("fedmf", ["combine.use=covey.defenses.krum:Krum"], "'Krum' reads single uploads"),
        ("fedmf", ["fleet.bits=32"], "lower fleet.range, or set fleet.bits = 64"),
        ("fedmf", ["fleet.bits=48"], "fleet.bits = 48 is not valid"),
        ("fedmf", ["run.cohort=2"], "a secure sum takes at least 3 clients"),
        ("fedmf", ["fleet.neighbors=2"], "did you mean 'neighbours'"),
        ("ease", [], "leave out one of them"),
    ],
)
def test_impossible_pairs(
    method: str, changes: list[str], message: str, covey: Covey, tmp_path: Path
) -> None:
    sizes = [s for s in SMALL if method in ("fedmf", "pdc-frs") or not s.startswith("model.")]
    done = covey(
        "run",
        "--method",
        method,
        *sets(*sizes, "fleet.secure=true", *changes),
        "--out",
        tmp_path / "out",
    )
    expect_line(done, message)
    expect_nothing(tmp_path / "out")


def test_without_the_package(tmp_path: Path) -> None:
    """One line, and nothing is left behind."""
    hide = (
        "import sys; sys.modules['cryptography'] = None;"
        " from covey.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [
        "run",
        "--method",
        "fedmf",
        *sets(*SMALL, "fleet.secure=true"),
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", hide, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    assert "secure sums need the cryptography package; pip install 'covey[secure]'" in done.stderr
    expect_nothing(tmp_path / "out")


FEDERATED = sorted(name for name in shipped("methods") if "pooled" not in read("methods", name))


@pytest.mark.slow
@pytest.mark.parametrize("name", FEDERATED)
def test_every_shipped_method_gives_the_same_or_is_refused(name: str, tmp_path: Path) -> None:
    """By sums without masks, which change no bit."""
    tree = read("methods", name)
    sizes = [
        "data.users=24",
        "data.items=40",
        "data.mean_items=8",
        "run.rounds=2",
        "run.ceilings=[]",
        "run.cohort=0",
    ]
    sizes += [f"model.{k}={v}" for k, v in (("dim", 4), ("rank", 4)) if k in tree["model"]]
    sizes += ["mechanism.0.similarity=words"] if name == "pdc-frs-titles" else []  # no extra
    config = Config.of(assign(tree, sizes))
    sizes += ["fleet.secure=true", "fleet.masks=false"]
    single = {step for _, step in method_of(config, Catalogue(40)).single_readers()}
    if single:
        with pytest.raises(
            CoveyError, match=r"^'[\w -]+' reads .*, which secure aggregation hides"
        ):
            run(Config.of(assign(tree, sizes)), tmp_path / "hidden")
    if "train" in single:
        return
    hidden = Config.of(assign(tree, [*sizes, f"fleet.clear={json.dumps(sorted(single))}"]))
    clear, sums = run(config, tmp_path / "clear"), run(hidden, tmp_path / "sums")
    assert clear["test"] == pytest.approx(sums["test"], abs=0.02) and not sums["traffic"]["dropped"]

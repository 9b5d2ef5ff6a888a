"""The conformance suite itself: a sound mechanism passes, and every check names a planted fault."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from covey.contract.examples import Examples
from covey.contract.ledger import Disclosure
from covey.contract.mechanism import Mechanism
from covey.contract.views import ClientView, ServerView
from covey.core.messages import Catalogue, Sent, Total, Upload
from covey.core.ragged import FieldDict, Fields
from covey.engine.fleet import meter
from covey.engine.fleet.store import Store
from covey.engine.method import Method
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.compare import differences, infinite


def method_with(catalogue: Catalogue, *mechanisms: Mechanism) -> Method:
    return Method(MF(4), Bce(), catalogue, Local("sgd", 0.5, epochs=2), mechanisms)


@dataclass(frozen=True)
class Sound(Mechanism):
    """Uses every hook correctly: users report noisy vectors and are drawn to their average."""

    pull: float = 0.1
    noise: float = 0.01
    name: str = "sound"
    exchanges: frozenset[str] = frozenset({"enrol", "report"})

    def enrol(self, view: ClientView) -> FieldDict:
        return {"count": view.data.items.lengths}

    def report(self, view: ClientView) -> FieldDict:
        u_CD = view.user()
        return {"user": u_CD + view.rng.laplace(self.noise, u_CD.shape[1]).to(u_CD)}

    def augment(self, view: ClientView, examples: Examples) -> Examples:
        return replace(examples, weight=examples.weight * 1.5)

    def prepare(self, view: ClientView) -> Fields:
        return {"first": view.user().detach()}

    def loss(self, view: ClientView) -> Tensor:
        mean_D = view.received.shared["mean"]
        return self.pull * (
            (view.user() - mean_D).square().sum(1) + (view.user() - view.prepared["first"]).sum(1)
        )

    def protect_upload(self, view: ClientView, upload: Upload) -> Upload:
        return replace(
            upload,
            update={k: v.scaled(torch.full((len(upload),), 0.9)) for k, v in upload.update.items()},
        )

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        assert enrolment is not None
        return {"items": enrolment.extra[self.name]["count"].sum(), "rounds": torch.tensor(0)}

    def admit_clients(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        assert enrolment is not None
        return {
            **view.state,
            "items": view.state["items"] + enrolment.extra[self.name]["count"].sum(),
        }

    def receive_reports(
        self, view: ServerView, reports: Upload | Total
    ) -> tuple[FieldDict, Fields]:
        assert isinstance(reports, Upload)
        return {**view.state, "mean": reports.extra[self.name]["user"].mean(0)}, {}

    def send(self, view: ServerView) -> Sent:
        return Sent({"mean": view.state["mean"]}) if "mean" in view.state else Sent()

    def adjust_model(self, view: ServerView, model: Fields) -> tuple[FieldDict, Fields]:
        return view.state, {k: 0.99 * v for k, v in model.items()}

    def end_round(self, view: ServerView) -> FieldDict:
        return {**view.state, "rounds": view.state["rounds"] + 1}

    def disclosures(self) -> tuple[Disclosure, ...]:
        return (
            Disclosure("enrol", f"{self.name}/count", "how many items"),
            Disclosure("report", f"{self.name}/user", "the user's vector"),
        )


class TestSound(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_with(catalogue, Sound())


@dataclass(frozen=True)
class Mixes(Sound):
    """Its loss compares a client with the mean of the others in the block."""

    def loss(self, view: ClientView) -> Tensor:
        u_CD = view.user()
        return (u_CD - u_CD.mean(0)).square().sum(1)


@dataclass(frozen=True)
class ByChunk(Sound):
    """Its update depends on how many clients were computed together."""

    def protect_upload(self, view: ClientView, upload: Upload) -> Upload:
        share = torch.full((len(upload),), 1 / len(upload))
        return replace(upload, update={k: v.scaled(share) for k, v in upload.update.items()})


@dataclass(frozen=True)
class GlobalChance(Sound):
    def loss(self, view: ClientView) -> Tensor:
        u_CD = view.user()
        return (u_CD * torch.randn_like(u_CD)).sum(1)


@dataclass(frozen=True)
class Undeclared(Sound):
    def disclosures(self) -> tuple[Disclosure, ...]:
        return (Disclosure("enrol", f"{self.name}/count", "how many items"),)


@dataclass(frozen=True)
class ChangesMessage(Sound):
    def loss(self, view: ClientView) -> Tensor:
        view.received.shared["mean"].mul_(0.5)
        return super().loss(view)


@dataclass(frozen=True)
class ChangesExamples(Sound):
    def augment(self, view: ClientView, examples: Examples) -> Examples:
        examples.weight.mul_(2)
        return examples


@dataclass(frozen=True)
class ChangesMemory(Sound):
    def end_round(self, view: ServerView) -> FieldDict:
        view.state["rounds"] += 1
        return view.state


@dataclass(frozen=True)
class ChangesModel(Sound):
    def adjust_model(self, view: ServerView, model: Fields) -> tuple[FieldDict, Fields]:
        for value in model.values():
            value.mul_(0.99)
        return view.state, model


@dataclass(frozen=True)
class Remembers(Sound):
    """Counts on itself, where nobody saves it."""

    box: dict[str, float] = field(default_factory=dict)

    def adjust_model(self, view: ServerView, model: Fields) -> tuple[FieldDict, Fields]:
        self.box["times"] = self.box.get("times", 0.0) + 1
        return view.state, {k: v / self.box["times"] for k, v in model.items()}


MODULE: dict[str, float] = {}


@dataclass(frozen=True)
class RemembersElsewhere(Sound):
    def adjust_model(self, view: ServerView, model: Fields) -> tuple[FieldDict, Fields]:
        MODULE["times"] = MODULE.get("times", 0.0) + 1
        return view.state, {k: v / MODULE["times"] for k, v in model.items()}


@dataclass(frozen=True)
class CountsOnEverybody(Sound):
    def filter_uploads(self, view: ServerView, upload: Upload) -> Upload:
        missing = torch.full((len(upload),), math.nan if len(upload) < 7 else 1.0)
        return replace(upload, update={k: v.scaled(missing) for k, v in upload.update.items()})


@dataclass(frozen=True)
class ForgetsLate(Sound):
    """Its table of clients does not grow when somebody joins."""

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        return {"rounds": torch.tensor(0), "seen": torch.zeros(len(view.round.ids_C))}

    def admit_clients(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        return view.state

    def end_round(self, view: ServerView) -> FieldDict:
        return {**view.state, "seen": view.state["seen"].index_fill(0, view.round.ids_C, 1.0)}


@dataclass(frozen=True)
class NeverQuiteOff(Sound):
    """Leaves a trace where it should do nothing."""

    exchanges: frozenset[str] = frozenset()

    def augment(self, view: ClientView, examples: Examples) -> Examples:
        return examples

    def loss(self, view: ClientView) -> Tensor:
        return 1e-6 * view.user().sum(1)

    def protect_upload(self, view: ClientView, upload: Upload) -> Upload:
        return upload

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        return {"rounds": torch.tensor(0)}

    def adjust_model(self, view: ServerView, model: Fields) -> tuple[FieldDict, Fields]:
        return view.state, model


@dataclass(frozen=True)
class Off(NeverQuiteOff):
    def loss(self, view: ClientView) -> Tensor:
        return 0 * view.user().sum(1)


@dataclass
class Thawed(Mechanism):
    """Not frozen."""

    name: str = "thawed"


@dataclass(frozen=True)
class Doubles(Sound):
    """Its option is read back as another one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pull", 2 * self.pull)


@dataclass(frozen=True)
class HoldsTensor(Sound):
    """An option that no config file can hold."""

    weights: Tensor = field(default_factory=lambda: torch.ones(2))


def suite_of(part: Mechanism) -> Conformance:
    class Planted(Conformance):
        def method(self, catalogue: Catalogue) -> Method:
            return method_with(catalogue, part)

    return Planted()


PLANTED = [
    ("together_equals_apart", Mixes(), "together is not the same as apart"),
    ("together_equals_apart", ByChunk(), "together is not the same as apart"),
    ("together_equals_apart", GlobalChance(), "together is not the same as apart"),
    ("chunks_do_not_matter", Mixes(), "other bits with chunks"),
    ("chunks_do_not_matter", ByChunk(), "other bits with chunks"),
    ("every_field_is_declared_and_counted", Undeclared(), "sent but not in discloses.*sound/user"),
    ("again_gives_the_same_bits", GlobalChance(), "the same run again"),
    ("again_gives_the_same_bits", Remembers(), "the same run again"),
    ("again_gives_the_same_bits", RemembersElsewhere(), "the same run again"),
    ("hooks_are_pure", ChangesMessage(), "ChangesMessage.loss changed what it was given"),
    ("hooks_are_pure", ChangesExamples(), "ChangesExamples.augment changed what it was given"),
    ("hooks_are_pure", ChangesMemory(), "ChangesMemory.end_round changed what it was given"),
    ("hooks_are_pure", ChangesModel(), "ChangesModel.adjust_model changed what it was given"),
    ("hooks_are_pure", Remembers(), "Remembers.adjust_model changed its own part"),
    ("drop_outs", CountsOnEverybody(), "not finite"),
    ("options_round_trip", Thawed(), "no frozen dataclass"),
    ("options_round_trip", Doubles(), "was read back where"),
    ("options_round_trip", HoldsTensor(), "cannot be written to a config file"),
]


@pytest.mark.parametrize(
    ("check", "part", "words"), PLANTED, ids=[f"{p[0]}-{type(p[1]).__name__}" for p in PLANTED]
)
def test_a_planted_fault_is_found(check: str, part: Mechanism, words: str) -> None:
    MODULE.clear()
    with pytest.raises(AssertionError, match=words):
        getattr(suite_of(part), f"test_{check}")()


def test_late_joiners_that_are_forgotten_are_found() -> None:
    with pytest.raises(IndexError):
        suite_of(ForgetsLate()).test_late_joiners()


def test_what_is_not_saved_is_found(tmp_path: Path) -> None:
    class Fresh(Conformance):
        def method(self, catalogue: Catalogue) -> Method:
            return method_with(catalogue, Remembers(box={}))

    with pytest.raises(AssertionError, match="stopped and continued"):
        Fresh().test_saves_and_loads(tmp_path)


def neutral_pair(part: Mechanism) -> Conformance:
    class Planted(Conformance):
        def method(self, catalogue: Catalogue) -> Method:
            return method_with(catalogue, part)

        def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
            return self.method(catalogue), method_with(catalogue)

    return Planted()


def test_a_neutral_setting_that_leaves_a_trace_is_found() -> None:
    neutral_pair(Off()).test_neutral_setting()
    with pytest.raises(AssertionError, match="turned off"):
        neutral_pair(NeverQuiteOff()).test_neutral_setting()


def test_wrongly_counted_bytes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = meter.field_bytes
    monkeypatch.setattr(
        meter, "field_bytes", lambda path, value: right(path, value) + (path == "update/items")
    )
    with pytest.raises(AssertionError, match="other bytes than the wire"):
        suite_of(Sound()).test_every_field_is_declared_and_counted()


def test_a_store_that_touches_absent_clients_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Store.put

    def put(self: Store, ids_C: Tensor, kept: FieldDict) -> None:
        right(self, ids_C, kept)
        if "user" in self.dense and len(ids_C) < self.n:
            self.dense["user"][(ids_C[0] + 1) % self.n] = 0.5

    monkeypatch.setattr(Store, "put", put)
    play = suite_of(Sound())
    monkeypatch.setattr(play, "_agree", lambda **options: None)
    with pytest.raises(AssertionError, match="was away, yet what it keeps has changed"):
        play.test_drop_outs()


@pytest.mark.parametrize(
    ("a", "b", "tolerance", "found"),
    [
        (torch.tensor([1.0]), torch.tensor([1.0]), None, 0),
        (torch.tensor([0.0]), torch.tensor([-0.0]), None, 1),
        (torch.tensor([math.nan]), torch.tensor([math.nan]), 1e-9, 0),
        (torch.tensor([math.nan, 1]), torch.tensor([1, math.nan]), 1e-9, 1),
        (torch.tensor([1.0]), torch.tensor([1.0 + 1e-6]), 1e-5, 0),
        (torch.tensor([1.0]), torch.tensor([1.0 + 1e-4]), 1e-5, 1),
        (torch.tensor([1e6]), torch.tensor([1e6 + 1]), 1e-5, 0),
        (torch.tensor([1]), torch.tensor([2]), 1e9, 1),
        (torch.zeros(2), torch.zeros(3), 1.0, 1),
        (torch.zeros(2), torch.zeros(2).double(), 1.0, 1),
        ({"a": 1, "b": 2}, {"a": 1}, None, 1),
        ([1, (2, 3)], (1, [2, 4]), None, 1),
        ({"a": torch.ones(1)}, {"a": None}, None, 1),
    ],
)
def test_differences(a: Any, b: Any, tolerance: float | None, found: int) -> None:
    assert len(list(differences(a, b, tolerance))) == found


def test_infinite() -> None:
    assert list(infinite({"a": {"b": torch.tensor([1.0, math.inf])}, "c": torch.tensor(1)})) == [
        "/a/b"
    ]

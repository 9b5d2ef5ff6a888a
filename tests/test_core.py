"""Rounds: which clients take part in which exchange, and what they receive."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from covey.aggregate.combine import Mean
from covey.aggregate.grouping import Nobody
from covey.contract.aggregation import Group, Grouping
from covey.contract.attack import AttackView
from covey.contract.fleet import Request
from covey.contract.ledger import Disclosure
from covey.contract.mechanism import Mechanism
from covey.contract.views import ClientView, Reads, ServerView
from covey.core.errors import CoveyError
from covey.core.messages import Download, Round, Sent, Total, Upload, stack
from covey.core.ragged import FieldDict, Fields, Ragged, Rows
from covey.core.rng import Rng
from covey.engine.client.program import Program
from covey.engine.client.ranking import HeldOut, Ranker, measure
from covey.engine.method import Method
from covey.engine.rounds import Server, enrol, run_round, start
from covey.engine.secure.settings import SINGLES
from covey.evaluate.metrics import EvaluateConfig
from covey.models.mf import MF
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce, Bpr
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.compare import clone, expect_same, infinite
from covey.testing.world import Play, Setting, World, client_half

WORLD = World.of(8, 20)
SGD = Local("sgd", 0.5, epochs=2)


def play(*mechanisms: Mechanism, setting: Setting | None = None, **parts: object) -> Play:
    method = Method(MF(3), Bce(), WORLD.catalogue, SGD, mechanisms)
    return Play(replace(method, **parts), WORLD, setting or Setting(rounds=2)).begin()  # type: ignore[arg-type]


def test_a_round_of_clients_that_do_not_count_changes_nothing() -> None:
    """Weighted by examples, client 0 has none."""
    game = play(combine=Mean(), weighting="examples")
    before = clone(game.server.public)
    server, round = run_round(game.server, game.fleet, game.method, Round(1, torch.tensor([0])))
    expect_same(before, server.public)
    assert round.ids_C.tolist() == [0]


@dataclass(frozen=True)
class OnlySome(Mechanism):
    """The server filters out all but some clients."""

    keep: tuple[int, ...] = ()
    name: str = "only some"

    def filter_uploads(self, view: ServerView, upload: Upload) -> Upload:
        return upload.take(torch.isin(upload.ids_C, torch.tensor(self.keep)).nonzero()[:, 0])


@dataclass(frozen=True)
class LooksInside(Mechanism):
    """The server looks at updates, as defences do."""

    name: str = "looks inside"

    def filter_uploads(self, view: ServerView, upload: Upload) -> Upload:
        return upload.take((upload.update["items"].items.lengths >= 0).nonzero()[:, 0])


@pytest.mark.parametrize("wire", [False, True])
def test_no_filter_where_nobody_answered(wire: bool) -> None:

    def away(step: str, round: int, ids_C: Tensor) -> Tensor:
        return torch.full_like(ids_C, step == "train", dtype=torch.bool)

    game = play(LooksInside(), setting=Setting(wire=wire, lost=away))
    before = clone(game.server.public)
    expect_same(before, game.go(1).server.public)


@dataclass(frozen=True)
class Pairs(Grouping):
    """The first client of the upload receives a personal model, which is its upload."""

    name: str = "pairs"
    reads_uploads: Reads = "each"

    def groups(self, view: ServerView, upload: Upload | Total) -> tuple[FieldDict, Sequence[Group]]:
        return {}, [Group(("items",), torch.tensor([0]), public=False)]


def test_models_go_to_the_clients_that_are_left_after_a_filter() -> None:
    game = play(
        OnlySome((5,)), model=LinearScore(3, keep_items=True), grouping=Pairs(), combine=Mean()
    )
    ids_C = torch.tensor([2, 5, 7])
    alone = play(OnlySome((2, 5, 7)), model=LinearScore(3, keep_items=True), grouping=Nobody())
    game.server, _ = run_round(game.server, game.fleet, game.method, Round(1, ids_C))
    alone.server, _ = run_round(alone.server, alone.fleet, alone.method, Round(1, ids_C))
    for client in (
        ids_C.tolist()
    ):  # a lone client's model is its own, so nothing changes for it, nor for the others
        expect_same(game.kept(client), alone.kept(client))


def test_a_filter_that_leaves_nobody() -> None:
    game = play(OnlySome(()))
    before = clone(game.server.public)
    expect_same(before, game.go().server.public)


@dataclass(frozen=True)
class Asks(Mechanism):
    """Other clients than those that train report, and each of them receives its number."""

    who: tuple[int, ...] = (6, 1, 3)
    name: str = "asks"
    reads_reports: Reads = "each"
    exchanges: frozenset[str] = frozenset({"report"})
    heard: dict[str, list[object]] = field(default_factory=dict, compare=False)

    def select_reporters(self, view: ServerView, everyone: Tensor) -> Tensor | None:
        return torch.tensor(self.who) if self.who else None

    def send(self, view: ServerView) -> Sent:
        return Sent({}, {"number": view.round.ids_C.clone()})

    def report(self, view: ClientView) -> FieldDict:
        return {
            "number": view.received.each["number"] * 10,
            "one": torch.ones(len(view.received.each["number"])),
        }

    def receive_reports(
        self, view: ServerView, reports: Upload | Total
    ) -> tuple[FieldDict, Fields]:
        self.heard.setdefault("ids", []).append(view.round.ids_C.tolist())
        said = reports.extra[self.name]["number"]
        self.heard.setdefault("said", []).append(said.tolist())
        return {}, {"items": torch.full((20, 3), 0.25)}

    def disclosures(self) -> tuple[Disclosure, ...]:
        return (
            Disclosure("report", "asks/number", "a number"),
            Disclosure("report", "asks/one", "one"),
        )


@pytest.mark.parametrize("wire", [False, True])
def test_reporters_are_told_what_is_theirs(wire: bool) -> None:
    part = Asks()
    game = play(part, setting=Setting(wire=wire))
    _, round = run_round(game.server, game.fleet, game.method, Round(1, torch.tensor([2, 4])))
    assert part.heard == {"ids": [[6, 1, 3]], "said": [[60, 10, 30]]}
    assert round.ids_C.tolist() == [2, 4]


def test_a_method_that_only_reports() -> None:
    part = Asks(who=())
    game = play(part, solver=None)
    server, _ = run_round(game.server, game.fleet, game.method, Round(1, torch.tensor([2, 4])))
    assert part.heard["said"] == [[20, 40]]
    assert bool((server.public["items"] == 0.25).all())
    assert {step for step, _ in game.fleet.meter.bytes} == {"report"}


def test_reports_that_may_be_summed_are() -> None:
    part = Asks(who=(), reads_reports="total")
    game = play(part)
    assert game.method.folds("report")
    run_round(game.server, game.fleet, game.method, Round(1, torch.tensor([2, 4])))
    assert part.heard["said"] == [60]


def test_the_round_narrows_to_those_who_answered() -> None:
    def lost(step: str, round: int, ids_C: Tensor) -> Tensor:
        return ids_C % 3 == (0 if step == "report" else 1)

    game = play(Asks(who=()), setting=Setting(lost=lost))
    _, round = run_round(game.server, game.server_side, game.method, Round(1, torch.arange(8)))
    assert game.server_side.asked == {(1, "report"): {1, 2, 4, 5, 7}, (1, "train"): {2, 5}}
    assert round.ids_C.tolist() == [2, 5]


def test_nobody_there_at_all() -> None:
    game = play(Asks(who=()))
    before = clone(game.server.public)
    server, round = run_round(
        game.server, game.fleet, game.method, Round(1, torch.zeros(0, dtype=torch.long))
    )
    expect_same(before, server.public)
    assert not len(round.ids_C)


def test_a_method_that_reads_single_uploads_refuses_secure_sums() -> None:
    game = play(OnlySome((1,)))
    game.fleet.hides = SINGLES
    with pytest.raises(CoveyError, match="linear combine"):
        enrol(game.server, game.fleet, game.method)


def test_names_of_parts_are_unique() -> None:
    with pytest.raises(ValueError, match="share a name"):
        play(OnlySome(), OnlySome())


def test_mini_batches_need_single_examples() -> None:
    with pytest.raises(CoveyError, match="batch = 0"):
        Program(MF(2), Bpr(), WORLD.catalogue, Local(batch=4))


def test_an_unknown_step() -> None:
    game = play()
    with pytest.raises(ValueError, match="unknown step"):
        game.fleet.ask(
            Request("dance", 1, torch.tensor([1]), Download(Sent(dict(game.server.public))))
        )


def test_everybody_starts_from_the_same_seed() -> None:
    game = play()
    expect_same(start(game.method), Server(game.server.public))
    other = start(replace(game.method, seed=8))
    assert not torch.equal(other.public["items"], game.server.public["items"])


def test_diverged_clients_are_left_out() -> None:
    """A client whose training overflows does not spoil the model."""
    game = play(solver=Local("sgd", 1e38, epochs=3))
    server, _ = run_round(game.server, game.fleet, game.method, Round(1, torch.arange(8)))
    assert game.fleet.meter.dropped.get("not finite", 0) > 0
    assert not list(infinite(server.public))


def test_uploads_are_stacked_and_taken_apart() -> None:
    one = Upload(
        torch.tensor([3]), torch.ones(1), {"a": Rows(Ragged.of([[1, 2]]), torch.ones(2, 1), 4)}
    )
    two = Upload(
        torch.tensor([5]), torch.ones(1) * 2, {"a": Rows(Ragged.of([[0]]), torch.ones(1, 1) * 7, 4)}
    )
    both = stack([one, two])
    assert both.ids_C.tolist() == [3, 5] and both.update["a"].dense()[..., 0].tolist() == [
        [0, 1, 1, 0],
        [7, 0, 0, 0],
    ]
    expect_same(both.take(torch.tensor([1])), two)


@dataclass(frozen=True)
class Remembering:
    """Attackers whose uploads grow with every request, as counted in their shared memory."""

    name: str = "remembering"
    knowledge: str = ""

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        if view.step != "train":
            return {}, upload
        times, many = view.memory.get("times", torch.zeros(())) + 1, len(upload)
        table = view.download.public.shared["items"]
        loud = (times / 100).to(table).expand(many, table.shape[1])
        rows = Rows(Ragged.of([[0]] * many), loud, len(table))
        return {"times": times}, replace(upload, update={"items": rows})


class TestAttackersThatRemember(Conformance):
    attackers = 3
    cohort = 28  # all clients, so that attackers take part in every round

    def method(self, catalogue):  # type: ignore[no-untyped-def]
        return Method(MF(3), Bce(), catalogue, SGD)

    def attack(self) -> Remembering:
        return Remembering()


def held_out() -> HeldOut:
    return HeldOut(Ragged.of([[3], [], [1]]), Ragged.of([[0], [2], []]))


def ranker(tuned: Rows | None = None) -> Ranker:
    items = torch.tensor([[4.0], [3.0], [2.0], [1.0], [0.0]])
    return Ranker(
        MF(1),
        {"items": items[None], "user": torch.ones(3, 1)},
        tuned,
        Rng.of(0, 1, torch.arange(3)),
    )


def test_every_client_measures_the_same_figures_with_or_without_anything_held_out() -> None:
    train, config = Ragged.of([[1], [0], [4]]), EvaluateConfig(metrics=("hit@2",))
    figures = measure(ranker(), train, held_out(), config)
    assert figures["valid/hit@2"].nan_to_num(nan=-1).tolist() == [0, -1, 1]
    assert figures["test/hit@2"].nan_to_num(nan=-1).tolist() == [1, 1, -1]
    for c in range(3):
        pick = torch.tensor([c])
        alone = replace(ranker(), params={**ranker().params, "user": torch.ones(1, 1)})
        expect_same(
            measure(alone, train.take(pick), held_out().take(pick), config),
            {k: v[pick] for k, v in figures.items()},
        )


def test_a_part_that_nobody_has_is_not_measured() -> None:
    held = HeldOut(Ragged.of([[], [], []]), held_out().test)
    figures = measure(
        ranker(), Ragged.of([[1], [0], [4]]), held, EvaluateConfig(metrics=("hit@2",))
    )
    assert set(figures) == {"test/hit@2"}


def test_tuned_rows_count_on_top_of_the_table() -> None:
    tuned = Rows(Ragged.of([[0, 4], [], [2]]), torch.tensor([[-10.0], [10.0], [0.5]]), 5)
    u_CD, everything = torch.ones(3, 1), torch.arange(5).expand(3, 5)
    score_CI = ranker(tuned).all_items(u_CD)
    assert score_CI.tolist() == [[-6, 3, 2, 1, 10], [4, 3, 2, 1, 0], [4, 3, 2.5, 1, 0]]
    expect_same(score_CI, ranker(tuned).some_items(u_CD, everything))


def test_scores_of_a_base_are_added() -> None:
    """For ranges and lists of items, and for single clients with their own parameters."""
    own = {
        "score": torch.tensor([[1.0], [0.0], [-1.0]]),
        "bias": torch.tensor([[0.0], [0.0], [7.0]]),
    }
    params = {"items": torch.tensor([[[1.0], [0.0], [2.0], [0.0], [5.0]]]), **own}
    both = replace(ranker(), base=Ranker(LinearScore(1), params, None, ranker().rng))
    u_CE, everything = both.user(Ragged.of([[], [], []])), torch.arange(5).expand(3, 5)
    wanted = torch.tensor([[5.0, 3, 4, 1, 5], [4, 3, 2, 1, 0], [10, 10, 7, 8, 2]])
    expect_same(both.all_items(u_CE), wanted)
    expect_same(both.all_items(u_CE, 1, 3), wanted[:, 1:3])
    expect_same(both.some_items(u_CE, everything), wanted)
    expect_same(both.span(2, 3).all_items(u_CE[2:]), wanted[2:])


def test_a_program_is_the_client_half_of_its_method() -> None:
    program = client_half(play().method, Setting())
    declared = {(d.step, d.name) for d in program.disclosures()}
    assert ("train", "update/items") in declared and (
        "evaluate",
        "evaluate/test/recall@5",
    ) in declared


def test_the_suite_asks_for_a_method(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="return the method"):
        Conformance().test_saves_and_loads(tmp_path)

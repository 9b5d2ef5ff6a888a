"""The wire fleet drops and counts replies that are not valid; the round goes on without them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from covey.core.messages import Download, Sent, Upload
from covey.core.ragged import Ragged, Rows
from covey.engine.fleet.codec import (
    Envelope,
    Malformed,
    decode_upload,
    encode_download,
    encode_upload,
)
from covey.engine.fleet.wire import Node, WireFleet
from covey.engine.method import Method
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing.compare import clone, expect_same
from covey.testing.world import Play, Setting, World
from rewound import rewind

BAD = 3  # the client whose messages go wrong
ITEMS = 20
Fault = Callable[[bytes], Iterable[bytes]]


def play(fault: Fault | None = None, rounds: int = 2, **options: Any) -> Play:
    world = World.of(8, ITEMS)
    method = Method(MF(3), Bce(), world.catalogue, Local("sgd", 0.5, epochs=2))
    game = Play(method, world, Setting(rounds=rounds, cohort=8, wire=True, **options)).begin()
    fleet = game.fleet
    assert isinstance(fleet, WireFleet)

    def transport(client: int, request: bytes) -> Iterable[bytes]:
        reply = fleet.nodes[client].handle(request)
        return fault(reply) if fault and client == BAD else [reply]

    fleet.transport = transport
    return game


def public_without(lost: set[int]) -> dict[str, Tensor]:
    """The model after the same rounds when some clients never answer."""

    def away(step: str, round: int, ids_C: Tensor) -> Tensor:
        return torch.tensor([c in lost for c in ids_C.tolist()])

    return play(lost=away).go().server.public


def changed(change: Callable[[Envelope, Upload], tuple[Envelope, Upload]]) -> Fault:
    return lambda reply: [encode_upload(*change(*decode_upload(reply)))]


def with_update(value: Any) -> Fault:
    return changed(lambda e, u: (e, replace(u, update={"items": value})))


def rows(items: list[int], width: int = 3, height: int = ITEMS, fill: float = 1.0) -> Rows:
    return Rows(Ragged.of([items]), torch.full((len(items), width), fill), height)


FAULTS: dict[str, tuple[str, Fault]] = {
    "lost": ("", lambda reply: []),
    "empty": ("malformed", lambda reply: [b""]),
    "cut": ("malformed", lambda reply: [reply[:-1]]),
    "longer": ("malformed", lambda reply: [reply + b"\0"]),
    "noise": ("malformed", lambda reply: [bytes(reversed(reply))]),
    "large": ("oversized", lambda reply: [reply + b"\0" * (1 << 20)]),
    "other client": ("misaddressed", changed(lambda e, u: (replace(e, client=2), u))),
    "unknown client": ("misaddressed", changed(lambda e, u: (replace(e, client=-1), u))),
    "other round": ("misaddressed", changed(lambda e, u: (replace(e, round=e.round - 1), u))),
    "other run": ("misaddressed", changed(lambda e, u: (replace(e, run=99), u))),
    "other step": ("misaddressed", changed(lambda e, u: (replace(e, step="report"), u))),
    "wide rows": ("odd shape", with_update(rows([1], width=4))),
    "tall table": ("odd shape", with_update(rows([1], height=ITEMS + 1))),
    "huge table": ("odd shape", with_update(rows([], height=2**32 - 1))),
    "small dense table": ("odd shape", with_update(torch.ones(1, 1, 3))),
    "number": ("odd shape", with_update(torch.ones(1))),
    "lists": ("odd shape", with_update(Ragged(torch.ones(2, 3), torch.tensor([0, 2])))),
    "double": ("odd shape", with_update(Rows(Ragged.of([[1]]), torch.ones(1, 3).double(), ITEMS))),
    "nothing": ("odd shape", changed(lambda e, u: (e, replace(u, update={})))),
    "unknown parameter": (
        "undeclared",
        changed(lambda e, u: (e, replace(u, update={"user": torch.ones(1, 3)}))),
    ),
    "own weight": (
        "undeclared",
        changed(lambda e, u: (e, replace(u, weight_C=torch.tensor([1000.0])))),
    ),
    "undeclared field": (
        "undeclared",
        changed(lambda e, u: (e, replace(u, extra={"m": {"x": torch.ones(1)}}))),
    ),
    "nan": ("not finite", with_update(rows([1], fill=torch.nan))),
    "infinity": ("not finite", with_update(rows([1], fill=-torch.inf))),
    "beyond sums": ("not finite", with_update(rows([1], fill=3e38))),
    "item twice": ("malformed", with_update(rows([1, 1]))),
}


@pytest.fixture(scope="module")
def without_bad() -> dict[str, Tensor]:
    return public_without({BAD})


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_message_is_dropped_and_counted(name: str, without_bad: dict[str, Tensor]) -> None:
    reason, fault = FAULTS[name]
    game = play(fault)
    game.fleet.limit = 1 << 20  # type: ignore[union-attr]
    game.go()
    assert game.fleet.meter.dropped == ({reason: 2} if reason else {})
    expect_same(game.server.public, without_bad)


def test_a_replayed_message_counts_once() -> None:
    game = play(lambda reply: [reply, reply, reply]).go()
    assert game.fleet.meter.dropped == {"replayed": 4}
    expect_same(game.server.public, public_without(set()))


def test_nobody_speaks_for_somebody_else(without_bad: dict[str, Tensor]) -> None:
    """A client that also sends a message in another's name, before that one can."""
    game = play()
    fleet = game.fleet
    assert isinstance(fleet, WireFleet)

    def transport(client: int, request: bytes) -> Iterable[bytes]:
        reply = fleet.nodes[client].handle(request)
        envelope, upload = decode_upload(reply)
        forged = encode_upload(
            replace(envelope, client=BAD), replace(upload, update={"items": rows([0], fill=9.0)})
        )
        return [forged, reply] if client != BAD else []

    fleet.transport = transport
    game.go()
    assert fleet.meter.dropped == {"misaddressed": 14}
    expect_same(game.server.public, without_bad)


@pytest.mark.parametrize("fault", [lambda reply: [], lambda reply: [b"noise"]])
def test_a_round_without_any_good_message_changes_nothing(fault: Fault) -> None:
    game = play()
    game.fleet.transport = lambda client, request: fault(b"")  # type: ignore[union-attr]
    before = clone(game.server.public)
    game.go()
    expect_same(before, game.server.public)


def test_the_shape_that_was_sent_counts_and_not_that_of_the_majority() -> None:
    game = play()
    fleet = game.fleet
    assert isinstance(fleet, WireFleet)
    wrong = with_update(rows([1], width=4))
    fleet.transport = lambda c, request: (
        [fleet.nodes[c].handle(request)] if c == BAD else wrong(fleet.nodes[c].handle(request))
    )
    game.go()
    expect_same(game.server.public, public_without(set(range(8)) - {BAD}))


def test_a_reply_that_is_lost_leaves_the_device_as_after_training() -> None:
    """The client has done its work; only the server does not know."""
    game, honest = play(lambda reply: [], rounds=1).go(), play(rounds=1).go()
    expect_same(game.kept(BAD), honest.kept(BAD))


def request_of(game: Play, client: int, round: int = 1, run: int = 1, step: str = "train") -> bytes:
    return encode_download(
        Envelope(step, run, round, client), Download(Sent(dict(game.server.public)))
    )


def node_of(game: Play) -> Node:
    assert isinstance(game.fleet, WireFleet)
    return game.fleet.nodes[BAD]


def test_a_repeated_request_has_the_same_answer_and_no_second_effect() -> None:
    game = play()
    node, request = node_of(game), request_of(game, BAD)
    first, kept = node.handle(request), clone(node.kept)
    assert node.handle(request) == first
    expect_same(kept, node.kept)


def test_a_request_of_a_round_that_is_over_is_refused() -> None:
    game = play()
    node = node_of(game)
    node.handle(request_of(game, BAD, round=1))
    node.handle(request_of(game, BAD, round=2))
    kept = clone(node.kept)
    with pytest.raises(Malformed, match="over"):
        node.handle(request_of(game, BAD, round=1))
    expect_same(kept, node.kept)


@pytest.mark.parametrize("wrong", [{"client": 2}, {"client": BAD, "run": 2}])
def test_a_request_for_another_is_refused(wrong: dict[str, int]) -> None:
    game = play()
    node = node_of(game)
    kept = clone(node.kept)
    with pytest.raises(Malformed, match="addressed"):
        node.handle(request_of(game, **wrong))
    expect_same(kept, node.kept)


def test_a_node_that_is_rewound_answers_as_before() -> None:
    game = play()
    node = node_of(game)
    node.handle(request_of(game, BAD, round=1))
    before, request = clone(node.kept), request_of(game, BAD, round=2)
    first, after = node.handle(request), clone(node.kept)
    rewind(node, before)
    expect_same(before, node.kept)
    assert node.handle(request) == first
    expect_same(after, node.kept)


def test_a_server_that_repeats_a_round_gets_the_same_model() -> None:
    """A server killed after its clients trained starts the round again from its checkpoint."""
    game = play(rounds=2).go(1)
    saved = game.server
    first = game.go(1).server
    game.server, game.round = saved, 1
    expect_same(first, game.go(1).server)

"""Device noise is drawn once for each answer, also if a server that lost its round asks again."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pytest
import torch

from covey.contract.ledger import Disclosure
from covey.contract.mechanism import Mechanism
from covey.contract.views import ClientView
from covey.core.messages import Download, Sent
from covey.core.ragged import FieldDict
from covey.engine.fleet.codec import Envelope, Malformed, decode_upload, encode_download
from covey.engine.fleet.wire import Node, WireFleet
from covey.engine.method import Method
from covey.methods.fedcl import HardNegatives
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.privacy.uploads import NoisyUploads
from covey.solvers import Local
from covey.testing.compare import clone, expect_same
from covey.testing.world import Play, Setting, World
from rewound import rewind

WHO = 3


@dataclass(frozen=True)
class Lottery(Mechanism):
    """What clients say when they join is chance alone."""

    noise: Literal["simulated", "device"] = "device"
    name: str = "lottery"
    exchanges: frozenset[str] = frozenset({"enrol"})

    def enrol(self, view: ClientView) -> FieldDict:
        return {
            "ticket": torch.tensor([[secrets.randbits(31)] for _ in range(len(view.data.items))])
        }

    def disclosures(self) -> tuple[Disclosure, ...]:
        return (Disclosure("enrol", f"{self.name}/ticket", "chance"),)


def hard(repeat: Literal["pass", "once", "budget"]) -> HardNegatives:
    return HardNegatives(clusters=2, count=2, noise="device", repeat=repeat, reports=2)


def play(mechanism: Mechanism) -> tuple[Play, Node]:
    world = World.of(6, 20)
    method = Method(MF(3), Bce(), world.catalogue, Local("sgd", 0.5, epochs=1), (mechanism,))
    game = Play(method, world, Setting(rounds=2, cohort=6, wire=True)).begin()
    assert isinstance(game.fleet, WireFleet)
    return game, game.fleet.nodes[WHO]


def request(game: Play, step: str, round: int = 1, times: float = 1.0) -> bytes:
    public = {k: times * v for k, v in game.server.public.items()}
    return encode_download(Envelope(step, 1, round, WHO), Download(Sent(public)))


SENDS: list[tuple[Callable[[], Mechanism], str]] = [
    (lambda: hard("once"), "report"),
    (lambda: hard("budget"), "report"),
    (lambda: hard("pass"), "report"),
    (lambda: NoisyUploads(epsilon=1.0, noise="device"), "train"),
]


@pytest.mark.parametrize(("made", "step"), SENDS)
def test_rewound_it_releases_the_same(made: Callable[[], Mechanism], step: str) -> None:
    game, node = play(made())
    start = dict(node.kept)
    first, after = node.handle(request(game, step)), clone(node.kept)
    rewind(node, start)
    assert node.handle(request(game, step)) == first
    expect_same(after, node.kept)


@pytest.mark.parametrize(("made", "step"), SENDS)
def test_rewound_it_answers_no_other_request(made: Callable[[], Mechanism], step: str) -> None:
    game, node = play(made())
    start = dict(node.kept)
    node.handle(request(game, step))
    rewind(node, start)
    before = clone(node.kept)
    with pytest.raises(Malformed, match="new noise would cost privacy"):
        node.handle(request(game, step, times=2.0))
    expect_same(before, node.kept)


def test_the_next_round_has_noise_of_its_own() -> None:
    game, node = play(hard("pass"))
    one, two = (
        decode_upload(node.handle(request(game, "report", n)))[1].extra["fedcl"]["user"]
        for n in (1, 2)
    )
    assert not torch.equal(one, two)


def test_a_budget_of_two_is_two_releases_however_often_a_round_is_lost() -> None:
    game, node = play(hard("budget"))
    sent = []
    for number in (1, 2, 3):
        start = dict(node.kept)
        for _ in range(3):
            sent.append(
                decode_upload(node.handle(request(game, "report", number)))[1].extra["fedcl"][
                    "user"
                ]
            )
            rewind(node, start)
        node.handle(request(game, "report", number))
    assert len({tuple(u_1D[0].tolist()) for u_1D in sent}) == 2
    assert int(node.kept["said/fedcl/count"]) == 2


@pytest.mark.parametrize(("repeat", "releases"), [("once", 1), ("budget", 2)])
def test_a_server_that_loses_every_round_hears_no_more(
    repeat: Literal["once", "budget"], releases: int
) -> None:
    game, node = play(hard(repeat))
    sent = set()
    for number in range(1, 6):
        start = dict(node.kept)
        u_1D = decode_upload(node.handle(request(game, "report", number)))[1].extra["fedcl"]["user"]
        sent.add(tuple(u_1D[0].tolist()))
        rewind(node, start)
    assert len(sent) == releases


def test_who_enrols_again_says_what_it_said() -> None:
    game, node = play(Lottery())
    start = dict(node.kept)
    first = decode_upload(node.handle(request(game, "enrol", 0)))[1].extra["lottery"]["ticket"]
    rewind(node, start)
    for number, times in ((0, 1.0), (0, 2.0), (4, 1.0)):
        envelope, again = decode_upload(node.handle(request(game, "enrol", number, times)))
        assert envelope.round == number
        assert torch.equal(again.extra["lottery"]["ticket"], first)


def test_simulated_noise_needs_no_memory() -> None:
    """It is a function of seed and round; a node that is asked something else answers that."""
    game, node = play(NoisyUploads(epsilon=1.0))
    start = dict(node.kept)
    first = node.handle(request(game, "train"))
    rewind(node, start)
    assert node.handle(request(game, "train", times=2.0)) != first
    assert not node.released

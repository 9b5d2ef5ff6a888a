"""FedPerGNN: the third party by hand, clients without neighbours, what is neutral, the suite."""

from dataclasses import replace

import pytest
import torch

from covey.core import Catalogue, CoveyError, Ragged, Round
from covey.methods.fedpergnn import GraphExpansion, ThirdParty, encrypted, matched
from covey.models.local_graph import GraphAttention
from covey.models.mf import MF
from covey.objectives import Bce, NextItemSoftmax
from covey.privacy.pseudo_items import PseudoItems
from covey.privacy.uploads import NoisyUploads
from covey.server import Method, view
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World

OBJECTIVE = NextItemSoftmax(stored=20, local=2)
SOLVER = Local("adam", 0.05, epochs=2)
KEY = torch.tensor([12345, 678])


def method_of(
    catalogue: Catalogue, first: int = 1, pseudo: int = 3, epsilon: float = 50.0, room: int = 3
) -> Method:
    clip = 1.0 if epsilon < float("inf") else float("inf")
    parts = (GraphExpansion(), ThirdParty(first, every=2))
    protected = (PseudoItems(pseudo), NoisyUploads(epsilon, clip=clip))
    model = GraphAttention(4, neighbours=room)
    return Method(model, OBJECTIVE, catalogue, SOLVER, (*parts, *protected))


class TestFedPerGNN(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue)


class TestFedPerGNNTurnedOff(Conformance):
    """No expansion, no pseudo items, no noise: the local graphs alone, by federated averaging."""

    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue, 99, 0, float("inf"))

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        alone = Method(GraphAttention(4, neighbours=0), OBJECTIVE, catalogue, SOLVER)
        return self.method(catalogue), alone


def test_the_most_similar_lists_are_neighbours() -> None:
    """Cosines with client 0: 2 / sqrt(6) of 1, 1 / sqrt(3) of 2, and nothing shared with 3."""
    codes = Ragged.of([[1, 2, 3], [1, 2], [3], [9], []])
    assert matched(codes, 2).tolist() == [[1, 2], [0, -1], [0, -1], [-1, -1], [-1, -1]]
    assert matched(codes, 1).tolist() == [[1], [0], [0], [-1], [-1]]
    assert matched(Ragged.of([[]]), 2).tolist() == [[-1, -1]]


def test_equal_items_have_equal_codes_and_order_says_nothing() -> None:
    codes = encrypted(Ragged.of([[5, 7, 5], [], [7]]), KEY, 900)
    assert codes.lengths.tolist() == [2, 0, 1]
    assert codes.values[2] in codes.values[:2] and bool(codes.values[0] < codes.values[1])
    other = encrypted(Ragged.of([[5, 7]]), KEY + 1, 900)
    assert not torch.isin(other.values, codes.values).any()
    for n_items in (40, 900):
        every = encrypted(Ragged.of([list(range(n_items))]), KEY, n_items)
        assert every.values.tolist() == list(range(n_items))  # one to one


def played(rounds: int = 2, **options: int) -> Play:
    world = World.of(12, 40)
    method = method_of(world.catalogue, pseudo=0, epsilon=float("inf"), **options)
    return Play(method, world, Setting(cohort=12)).begin().go(rounds)


def test_neighbours_are_vectors_of_others_who_share_items() -> None:
    play = played()
    state = play.server.state["third party"]
    assert state["ids"].tolist() == list(range(12))
    lists = [
        set(play.world.data.training.items.take(torch.tensor([c])).values.tolist())
        for c in range(12)
    ]
    for c in range(2, 12):
        near = [k for k in state["near"][c].tolist() if k >= 0]
        assert near and c not in near and all(lists[c] & lists[k] for k in near)
        got_KD = play.kept(c)["neighbours"]
        torch.testing.assert_close(got_KD[0, : len(near)], state["user"][near])


def test_a_client_without_items_has_no_neighbours_and_ranks() -> None:
    play = played()
    assert "neighbours" not in play.kept(0) and int(play.server.state["third party"]["near"][0, 0])
    seen = view(play.server, play.method, "third party", Round(3, torch.tensor([0, 77, 3])))
    sent_CKD = ThirdParty().send(seen).each["neighbours"]
    assert not sent_CKD[:2].any() and bool(sent_CKD[2].any())  # 77 has never reported
    fleet_kept = next(iter(play.fleet.private(torch.tensor([0]))))[1]
    assert bool(fleet_kept["user"].isfinite().all())


def test_the_third_party_never_has_the_key_or_an_item() -> None:
    """And the learning server has nothing that clients report."""
    play = played()
    seen = view(play.server, play.method, "expansion", Round(3, torch.arange(12)), "report")
    key = GraphExpansion().send(seen).shared["key"]
    third = play.server.state["third party"]
    assert set(third) == {"ids", "near", "user", "tell/neighbours"}
    assert not play.server.state["expansion"]
    own = replace(seen, name="third party", state=third)
    for step in ("report", "train"):
        sent = ThirdParty().send(replace(own, step=step))
        assert not any(torch.equal(x, key) for x in (*sent.shared.values(), *sent.each.values()))
    again = view(play.server, play.method, "expansion", Round(9, torch.arange(2)), "report")
    assert torch.equal(GraphExpansion().send(again).shared["key"], key)  # so that codes compare
    assert not GraphExpansion().send(replace(again, step="train")).shared


def test_expansions_happen_when_they_are_due() -> None:
    play = played(5, first=2)
    reported = sorted(
        r for (r, step), ids in play.server_side.asked.items() if step == "report" and ids
    )
    assert reported == [2, 4]


def test_what_leaves_is_declared_with_its_reader() -> None:
    world = World.of(6, 40)
    play = Play(method_of(world.catalogue), world, Setting()).begin()
    declared = {d.name: d for d in play.program.disclosures()}
    for name in ("third party/items", "third party/user"):
        assert "not to the learning server" in declared[name].what
    assert declared["update/items"].epsilon == 50 and "update/items/touched" in declared


def test_what_does_not_fit() -> None:
    world = World.of(6, 40)
    for model in (GraphAttention(4, neighbours=0), MF(4)):
        method = replace(method_of(world.catalogue), model=model, objective=Bce())
        method = replace(method, objective=OBJECTIVE if model.sequential else Bce())
        with pytest.raises(CoveyError, match="GraphAttention"):
            Play(method, world, Setting()).begin()
    for options in ({"first": 0}, {"every": 0}):
        with pytest.raises(CoveyError, match="third party"):
            ThirdParty(**options)
    missing = method_of(world.catalogue)
    with pytest.raises(CoveyError, match="listens"):
        replace(missing, mechanisms=missing.mechanisms[:1])

"""FedeRank: its update by hand, what leaves the device, and the conformance suite."""

import math
from dataclasses import replace

import pytest
import torch

from covey.aggregate.combine import Sum
from covey.contract.views import ClientView, TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Sent, Upload
from covey.core.ragged import Ragged, Rows
from covey.core.rng import Rng
from covey.engine.method import Method
from covey.methods.federank import FeedbackShare
from covey.models.mf import MF
from covey.objectives.pairs import Bpr
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World


def federank(catalogue: Catalogue, *share: FeedbackShare) -> Method:
    solver, objective = Local("sgd", 0.1, epochs=1), Bpr(reduction="sum")
    return Method(MF(4, bias=True), objective, catalogue, solver, share, combine=Sum())


class TestFedeRank(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return federank(catalogue, FeedbackShare(0.5))


class TestFedeRankAll(Conformance):
    """Share 1 is the method without the mask, bit for bit."""

    def method(self, catalogue: Catalogue) -> Method:
        return federank(catalogue, FeedbackShare(1.0))

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        return self.method(catalogue), federank(catalogue)


def uploads(share: float, lists: list[list[int]], rounds: int = 1, likes: int = 20) -> Rows:
    """What clients upload whose tables were moved in items 0 to `likes` + 9."""
    clients, wide = len(lists), likes + 10
    items = Ragged.of([list(range(wide))] * clients)
    values = torch.arange(clients * wide, dtype=torch.float32)[:, None] + 1
    made = Upload(torch.arange(clients), torch.ones(clients), {"items": Rows(items, values, wide)})
    mine = TrainingData(Ragged.of(lists), Ragged.of([sorted(set(x)) for x in lists]))
    rng = Rng.of(0, rounds, torch.arange(clients))
    view = ClientView({}, mine, Sent(), rng, MF(1), Bpr(), Catalogue(wide))
    rows = FeedbackShare(share).protect_upload(view, made).update["items"]
    assert isinstance(rows, Rows)
    return rows


def test_no_positive_leaves_with_share_0() -> None:
    """Clients with two likes, none, and one that stands twice in the list."""
    rows = uploads(0.0, [[1, 3], [], [4, 4]], likes=0)
    assert rows.items.lengths.tolist() == [8, 10, 9]
    left = [i for i in range(10) if i not in (1, 3)], [i for i in range(10) if i != 4]
    assert rows.items.take(torch.tensor([0])).values.tolist() == left[0]
    assert rows.items.take(torch.tensor([2])).values.tolist() == left[1]
    assert rows.take(torch.tensor([2])).values[:, 0].tolist() == [21.0 + i for i in left[1]]


def test_about_the_share_leaves_and_new_coins_are_thrown_in_each_round() -> None:
    lists = [list(range(20))] * 200
    first, second = uploads(0.3, lists), uploads(0.3, lists, rounds=2)
    sent = [(x.items.values < 20).double().sum() / 4000 for x in (first, second)]
    assert [float(x) for x in sent] == pytest.approx([0.3, 0.3], abs=0.03)
    assert int((first.items.values >= 20).sum()) == 2000  # negatives always leave
    assert not torch.equal(first.items.values, second.items.values)
    one = uploads(0.3, lists[:1])  # a client's coins are its own
    assert torch.equal(one.items.values, first.take(torch.tensor([0])).items.values)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_one_round_is_a_bpr_step_whose_positive_rows_are_held_back(share: float) -> None:
    """Against sums over triples with the received parameters: s = sigma(x_uj - x_ui)."""
    world = World.of(20, 30)
    method = federank(world.catalogue, FeedbackShare(share))
    play = Play(method, world, Setting(cohort=20, dtype=torch.float64)).begin()
    h_ID = play.server.public["items"].clone()
    w = {c: play.kept(c)["user"][0].clone() for c in range(20)}
    items, avoid = world.data.training.items, world.data.training.avoid
    rng = Rng.of(7, 1, torch.arange(20))
    made = method.objective.examples(items, avoid, 30, rng.fold("examples"))
    coin = rng.fold("feedback share").fold("coins").ragged_uniform(avoid.lengths)
    likes = dict(zip(zip(avoid.owner.tolist(), avoid.values.tolist()), coin.values.tolist()))
    move_ID, step = torch.zeros_like(h_ID), {c: torch.zeros_like(w[c]) for c in w}
    owner, pair = made.items.owner[::2].tolist(), made.items.values.view(-1, 2).tolist()
    for t, (c, (i, j)) in enumerate(zip(owner, pair, strict=True)):
        if not made.weight[2 * t + 1]:
            continue  # the client has every item, so no negative
        x = [float(w[c] @ h_ID[k, :4] + h_ID[k, 4]) for k in (i, j)]
        s = 1 / (1 + math.exp(x[0] - x[1]))
        gradient = s * torch.cat([w[c], torch.ones(1, dtype=torch.float64)])
        move_ID[j] -= gradient
        if likes[c, i] < share:
            move_ID[i] += gradient
        step[c] += s * (h_ID[i, :4] - h_ID[j, :4])
    play.go(1)
    torch.testing.assert_close(play.server.public["items"], h_ID + 0.1 * move_ID)
    for c in w:
        torch.testing.assert_close(play.kept(c)["user"][0], w[c] + 0.1 * step[c])


def test_a_client_with_one_item_makes_one_pair() -> None:
    world = World.of(6, 12)
    train = replace(world.data.training, items=Ragged.of([[3]] * 6))
    world = replace(world, data=replace(world.data, training=train))
    play = Play(federank(world.catalogue, FeedbackShare(0.0)), world, Setting()).begin()
    before = play.server.public["items"].clone()
    after = play.go(1).server.public["items"]
    assert torch.equal(after[3], before[3]) and not torch.equal(after, before)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_other_shares_are_refused(share: float) -> None:
    with pytest.raises(CoveyError, match=r"feedback share: share = .* from 0 .* to 1"):
        FeedbackShare(share)


def test_tables_that_stay_on_the_device_are_refused() -> None:
    world = World.of(6, 12)
    method = replace(federank(world.catalogue, FeedbackShare(0.5)), model=MF(4, keep_items=True))
    with pytest.raises(CoveyError, match="keep_items = false"):
        Play(method, world, Setting()).begin().go(1)

"""FedRecon: reconstruction and query by hand, what restarts, and the conformance suite."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from covey.aggregate.combine import Mean
from covey.contract.examples import Batch
from covey.contract.model import History
from covey.contract.views import ClientView
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Sent
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.method import Method
from covey.methods.fedrecon import ReconstructedMF, Reconstruction, Restart
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World

F64 = torch.float64
MODEL = ReconstructedMF(4, steps=3, lr=2.0)


def fedrecon(catalogue: Catalogue, epochs: int = 1, **objective: str) -> Method:
    solver = Local("sgd", 0.5, epochs=epochs)
    return Method(MODEL, Reconstruction(**objective), catalogue, solver)  # type: ignore[arg-type]


def kept(catalogue: Catalogue, *restart: Restart, optimizer: str = "sgd") -> Method:
    solver = Local(optimizer, 0.3, 1, 16, (("user",), ("items",)), state="kept")  # type: ignore[arg-type]
    return Method(MF(4), Bce(), catalogue, solver, restart, combine=Mean())


class TestFedRecon(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return fedrecon(catalogue, split="none")


class TestFedReconHalves(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return fedrecon(catalogue, epochs=3, split="half")


class TestRestart(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return kept(catalogue, Restart(2))

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        """Users that never restart are those of FedMF with the same phases."""
        return kept(catalogue, Restart(1000)), kept(catalogue)


class TestRestartAdam(Conformance):
    """The moments of a user vector start anew with it."""

    def method(self, catalogue: Catalogue) -> Method:
        return kept(catalogue, Restart(2), optimizer="adam")


def test_two_steps_of_reconstruction_by_hand() -> None:
    """One dimension, items 2 (liked) and -1 (not), equal weights, rate 1, from u = 0.

    The gradient is (sigma(2u) - 1) * 2 / 2 - sigma(-u) / 2: first -1/2 - 1/4, so u = 0.75. An
    example without weight changes nothing.
    """
    model = ReconstructedMF(1, steps=2, lr=1.0)
    v_CLD = torch.tensor([[[2.0], [-1.0], [50.0]]], dtype=F64)
    label, weight = torch.tensor([[1.0, 0.0, 1.0]]), torch.tensor([[1.0, 1.0, 0.0]], dtype=F64)
    u = 0.75
    second = (1 / (1 + math.exp(-2 * u)) - 1) - 1 / (1 + math.exp(u)) / 2
    found = model.reconstruct(torch.zeros(1, 1, dtype=F64), v_CLD, label, weight)
    assert found.tolist() == [[pytest.approx(u - second)]]


def batch_of(slots: list[int], label: list[int]) -> Batch:
    wide = len(slots)
    index, weight = torch.arange(wide)[None], torch.tensor([[float(s >= 0) for s in slots]])
    label_CL = torch.tensor([label]).float()
    return Batch(index, weight > 0, index, label_CL, weight, torch.tensor([slots]))


@pytest.mark.parametrize("split", ["none", "half"])
def test_support_makes_the_user_and_query_moves_the_items(split: str) -> None:
    """Against autograd: u from support with V fixed, then the gradient by V of the query's loss."""
    rng = Rng.of(0, 1, torch.arange(1))
    v = rng.fold("v").normal(6, 4, dtype=F64)
    batch = batch_of([0, 0, 1, 1, 2, -1], [1, 0, 1, 0, 1, 0])
    every = torch.tensor([[1.0, 1.0, 1.0, 1.0, 1.0, 0.0]])
    odd = torch.tensor([[0.0, 0.0, 1.0, 1.0, 0.0, 0.0]])
    support, query = (every, every) if split == "none" else (every - odd, odd)

    def mean_loss(u: Tensor, table: Tensor, weight: Tensor) -> Tensor:
        z = (table * u).sum(-1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            z, batch.label_CL.to(z), reduction="none"
        )
        return (loss * weight).sum() / weight.sum()

    u = MODEL.first(rng)
    for _ in range(MODEL.steps):
        at = u.clone().requires_grad_()
        (grad,) = torch.autograd.grad(mean_loss(at, v, support), at)
        u = u - MODEL.lr * grad
    table = v.clone().requires_grad_()
    objective = Reconstruction(split=split)  # type: ignore[arg-type]
    ready = objective.prepare(batch)
    ready |= objective.begin(MODEL, {"items": table}, batch, ready, rng)
    torch.testing.assert_close(ready["user"], u)
    loss_C = objective.loss(MODEL, {"items": table}, batch, ready, rng, None)
    expected = mean_loss(u, table, query)
    torch.testing.assert_close(loss_C[0], expected)
    view = ClientView({}, None, Sent(), rng, MODEL, objective, Catalogue(6), batch, ready)  # type: ignore[arg-type]
    assert view.user() is ready["user"]
    mine, theirs = (torch.autograd.grad(x, table)[0] for x in (loss_C.sum(), expected))
    torch.testing.assert_close(mine, theirs)
    assert bool((mine[0, 4] == 0).all()) == (split == "half")


def test_a_client_with_one_item_has_no_query() -> None:
    """Its one item is support, so its upload moves nothing, and it still gets a vector."""
    world = World.of(6, 12)
    train = world.data.training
    one = replace(world.data, training=replace(train, items=Ragged.of([[3]] * 6)))
    play = Play(fedrecon(world.catalogue, split="half"), replace(world, data=one), Setting())
    before = play.begin().server.public["items"].clone()
    assert torch.equal(play.go(1).server.public["items"], before)
    assert one.held is not None
    tested_C = one.held.test.lengths > 0
    assert bool(tested_C.any()) and torch.equal(play.evaluate()["test/ndcg@5"].isfinite(), tested_C)
    both = Play(
        fedrecon(world.catalogue, split="none"), replace(world, data=one), Setting()
    ).begin()
    assert not torch.equal(both.go(1).server.public["items"], before)


def test_a_user_that_was_never_seen_is_reconstructed() -> None:
    """Liked items score above others in each list; nothing is kept, whether a client took part."""
    rng = Rng.of(0, 3, torch.arange(2))
    table = {"items": torch.eye(6)[None]}
    history = History.of(Ragged.of([[0, 1], [4, 5, 2]]))
    model = ReconstructedMF(6, steps=30, lr=5.0)
    u_CD = model.user(table, history, rng, False)
    score_CI = model.score(table, u_CD, table["items"])
    assert set(score_CI.topk(2).indices[0].tolist()) == {0, 1}
    assert set(score_CI.topk(3).indices[1].tolist()) == {2, 4, 5}
    alone = model.user(
        table, History.of(Ragged.of([[4, 5, 2]])), rng.take(torch.tensor([1])), False
    )
    assert torch.equal(alone[0], u_CD[1])
    nobody = model.user(table, History.of(Ragged.of([[], []])), rng, False)
    assert bool((nobody.abs() <= model.start).all())
    world = World.of(20, 30)
    play = Play(fedrecon(world.catalogue), world, Setting(cohort=5)).begin().go(1)
    assert all(not play.kept(c) for c in range(20))


def test_users_restart_in_every_second_round() -> None:
    """In rounds 3, 5, ... a participant's vector no longer depends on the one that it kept."""
    world = World.of(12, 20)
    still = replace(kept(world.catalogue, Restart(2)), solver=Local("sgd", 0.0, epochs=1))
    play = Play(still, world, Setting(cohort=12, rounds=5)).begin()
    seen = []
    for _ in range(5):
        play.go(1)
        seen.append(torch.stack([play.kept(c)["user"] for c in range(12)]))
    same = [torch.equal(a, b) for a, b in pairwise(seen)]
    assert same == [True, False, True, False]
    assert not torch.isclose(seen[1], seen[2]).any() and not torch.isclose(seen[2], seen[4]).any()
    assert float(torch.stack(seen).std()) == pytest.approx(MF(4).scale, rel=0.3)


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda: Restart(0), "restart: every = 0"),
        (lambda: ReconstructedMF(steps=0), "steps = 0"),
        (lambda: ReconstructedMF(lr=0.0), "lr = 0"),
        (lambda: ReconstructedMF(negatives=0), "negatives = 0"),
        (lambda: Reconstruction(negatives=0), "negatives = 0"),
        (lambda: Reconstruction(split="third"), "split = 'third'"),  # type: ignore[arg-type]
    ],
)
def test_bad_options_are_refused(make: object, wrong: str) -> None:
    with pytest.raises(CoveyError, match=wrong):
        make()  # type: ignore[operator]


def test_other_models_are_refused() -> None:
    world = World.of(6, 12)
    method = replace(fedrecon(world.catalogue), model=MF(4))
    with pytest.raises(CoveyError, match="ReconstructedMF"):
        Play(method, world, Setting()).begin().go(1)

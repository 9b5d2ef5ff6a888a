"""FCF: the closed form, the gradient and the server's step by hand, and the conformance suite."""

import numpy as np
import pytest
import torch
from torch import Tensor

from covey.aggregate.combine import Sum
from covey.contract.examples import Batch
from covey.contract.model import History
from covey.core.messages import Catalogue
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.method import Method
from covey.methods.fcf import DecayedAdam, ImplicitMF, ImplicitSquares, first_places
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World

F64 = torch.float64
NOBODY = Rng.of(0, 0, torch.arange(1))


def fcf(catalogue: Catalogue, **step: float) -> Method:
    solver = Local("sgd", 1.0, epochs=1)
    return Method(
        ImplicitMF(4),
        ImplicitSquares(),
        catalogue,
        solver,
        combine=Sum(),
        server_step=DecayedAdam(**step),
    )


class TestFCF(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return fcf(catalogue, lr=0.05)


def table(*rows: list[float]) -> dict[str, Tensor]:
    return {"items": torch.tensor([rows], dtype=F64)}


def history(*places: int) -> History:
    index = torch.tensor([[*places, 0]])
    return History(index, torch.tensor([[True] * len(places) + [False]]))


def test_the_user_by_hand() -> None:
    """One dimension, y = (1, 2, 3), the client has the second item, alpha 1, lambda 2.

    Y'CY = 1 + 2 * 4 + 9 = 18, Y'Cp = 2 * 2 = 4, so x = 4 / (18 + 2).
    """
    x_CD = ImplicitMF(1, alpha=1.0, weight=2.0).user(
        table([1.0], [2.0], [3.0]), history(1), NOBODY, False
    )
    assert x_CD.tolist() == [[pytest.approx(0.2)]]


def test_an_item_that_stands_twice() -> None:
    """r = 2: c = 3, p = 1. Y'CY = 1 + 3 * 4 + 9 = 22 and Y'Cp = 3 * 2 = 6."""
    x_CD = ImplicitMF(1, alpha=1.0, weight=2.0).user(
        table([1.0], [2.0], [3.0]), history(1, 1), NOBODY, False
    )
    assert x_CD.tolist() == [[pytest.approx(6 / 24)]]
    assert first_places(history(3, 1, 3, 0)).tolist() == [[True, True, False, True, False]]


def batch_of(items: list[int]) -> Batch:
    """With a padded place and an item that a mechanism appended."""
    index = torch.tensor([[*items, 2, 0]])
    label = torch.tensor([[1.0] * len(items) + [0.0, 0.0]])
    weight = torch.tensor([[1.0] * len(items) + [1.0, 0.0]])
    slot = torch.tensor([[*range(len(items)), -1, -1]])
    return Batch(index, weight > 0, index, label, weight, slot)


def test_loss_and_gradient_are_those_of_the_paper() -> None:
    """Against sums over all items: f(u, i) = c_ui (p_ui - x.y_i) x, and dJ/dy_i = -2 f(u, i)."""
    rng = np.random.default_rng(3)
    y, x = rng.normal(size=(5, 2)), rng.normal(size=2)
    has, alpha = [4, 1, 4], 0.7
    r = np.bincount(has, minlength=5)
    c, p = 1 + alpha * r, (r > 0).astype(float)
    params = {"items": torch.tensor(y[None]).requires_grad_()}
    batch, objective = batch_of(has), ImplicitSquares()
    loss_C = objective.loss(
        ImplicitMF(2, alpha=alpha),
        params,
        batch,
        objective.prepare(batch),
        NOBODY,
        torch.tensor(x[None]),
    )
    assert loss_C.tolist() == pytest.approx([float((c * (p - y @ x) ** 2).sum())])
    (grad,) = torch.autograd.grad(loss_C.sum(), params["items"])
    np.testing.assert_allclose(grad[0].numpy(), -2 * (c * (p - y @ x))[:, None] * x, atol=1e-12)


def test_the_solved_user_is_the_best_one() -> None:
    model, params = ImplicitMF(2, alpha=2.0, weight=0.5), table([0.3, 1.0], [-0.2, 0.4], [1.0, 0.1])
    batch, objective = batch_of([0, 1]), ImplicitSquares()
    ready = objective.prepare(batch)
    x_CD = model.user(params, History(ready["sequence"], ready["mask"]), NOBODY, False)

    def whole(x_CD: Tensor) -> float:
        return float(objective.loss(model, params, batch, ready, NOBODY, x_CD)) + 0.5 * float(
            (x_CD**2).sum()
        )

    for step in ([1e-3, 0.0], [-1e-3, 0.0], [0.0, 1e-3], [0.0, -1e-3]):
        assert whole(x_CD + torch.tensor([step], dtype=F64)) > whole(x_CD)
    assert float(objective.loss(model, params, batch, ready, NOBODY, None)) == pytest.approx(
        float(objective.loss(model, params, batch, ready, NOBODY, x_CD))
    )


def test_the_servers_step() -> None:
    """The sum is 2, y = 3, lambda 0.5: the gradient is -2 + 3 = 1, and Adam's first step -lr."""
    _, params = DecayedAdam(lr=0.1, weight=0.5).step(
        {}, {"items": torch.tensor([3.0])}, {"items": torch.tensor([2.0])}
    )
    assert float(params["items"]) == pytest.approx(2.9)


def test_rounds_lower_the_objective() -> None:
    """J with every user solved, over all clients and items, as a dense sum."""
    world = World.of(20, 15)
    play = Play(fcf(world.catalogue, lr=0.05), world, Setting(cohort=20, dtype=F64)).begin()
    lists = world.data.training.items
    model = play.method.model

    def whole() -> float:
        params = {"items": play.server.public["items"][None]}
        x_CD = model.user(params, History.of(lists), NOBODY, False)
        p_CI = torch.zeros(len(lists), 15, dtype=F64)
        p_CI[lists.owner, lists.values] = 1
        square_CI = (1 + p_CI) * (p_CI - x_CD @ params["items"][0].mT) ** 2
        return float(square_CI.sum() + (x_CD**2).sum() + (params["items"] ** 2).sum())

    before = whole()
    middle = (play.go(10), whole())[1]
    after = (play.go(30), whole())[1]
    assert after < middle < before


def test_what_leaves_is_a_gradient_of_every_item() -> None:
    play = Play(fcf(Catalogue(10)), World.of(6, 10), Setting(cohort=6)).begin().go(1)
    assert (
        play.fleet.meter.bytes["train", "update/items"] > 6 * 10 * 4 * 4
    )  # clients, items, numbers, bytes


def test_an_empty_list_makes_no_example() -> None:
    none = Ragged.of([[]])
    assert ImplicitSquares().examples(none, none, 10, NOBODY).items.lengths.tolist() == [0]

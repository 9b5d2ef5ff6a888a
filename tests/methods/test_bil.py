"""BIL: the hinge on positives, and the spread of all items without a matrix of items by items."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from covey.aggregate.combine import Mean
from covey.aggregate.step import Adam
from covey.contract.examples import Batch
from covey.contract.model import Model
from covey.contract.views import ServerView, TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Round
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.client.program import LocalData, Program
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.method import Method
from covey.engine.rounds import enrol, run_round, start
from covey.methods.bil import PositiveHinge, Spreadout, spread
from covey.models.base import cosine
from covey.models.bert4rec import BERT4Rec
from covey.models.gru import GRU
from covey.models.mf import MF
from covey.models.sasrec import SASRec
from covey.solvers import Local
from covey.testing import Conformance


def bil(model: Model, catalogue: Catalogue, *mechanisms: Spreadout, rate: float = 0.01) -> Method:
    solver = Local("sgd", lr=1.0, epochs=1, rates={"user": 0.5} if isinstance(model, MF) else {})
    return Method(
        model,
        PositiveHinge(),
        catalogue,
        solver,
        mechanisms,
        combine=Mean(),
        server_step=Adam(rate),
        seed=0,
    )


class TestBil(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return bil(GRU(6, cosine=True), catalogue, Spreadout())

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        model = GRU(6, cosine=True)
        return bil(model, catalogue, Spreadout(weight=0)), bil(model, catalogue)


class TestBilWithUserVectors(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return bil(MF(4, cosine=True), catalogue, Spreadout(0.001, relative=False))


def direct(items_ID: Tensor) -> Tensor:
    """All cosines, the diagonal left out."""
    z_ID = F.normalize(items_ID, dim=1)
    cosine_II = z_ID @ z_ID.mT
    return (cosine_II - torch.diag(cosine_II.diagonal())).norm()


def test_the_spread_by_hand() -> None:
    """Two equal directions and one across: cosines 1, 0, 0 of three pairs, each twice."""
    items_ID = torch.tensor([[2.0, 0.0], [5.0, 0.0], [0.0, 0.1]])
    assert float(spread(items_ID)) == pytest.approx(math.sqrt(2))


def test_the_cheap_form_is_the_direct_one() -> None:
    items_ID = torch.randn(
        500, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    ours, theirs = spread(items_ID), direct(items_ID)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)
    (a,), (b,) = torch.autograd.grad(ours, items_ID), torch.autograd.grad(theirs, items_ID)
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-14)


def test_one_item_and_orthogonal_items_have_no_spread_to_gain() -> None:
    for items_ID in (torch.ones(1, 4), torch.eye(4), torch.zeros(3, 4)):
        (slope,) = torch.autograd.grad(spread(items_ID.requires_grad_()), items_ID)
        assert bool(slope.isfinite().all()) and float(slope.abs().max()) < 1e-5


def view(items_ID: Tensor) -> ServerView:
    ids_C = torch.tensor([0])
    return ServerView(
        {"items": items_ID},
        {},
        Round(1, ids_C),
        0,
        "x",
        MF(4),
        PositiveHinge(),
        Catalogue(len(items_ID)),
    )


def test_the_server_adds_what_every_client_would_have_added() -> None:
    """With one gradient each: the mean of (g + lambda dR) is the mean of g, plus lambda dR."""
    items_ID = torch.randn(30, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    step_CID = torch.randn(
        5, 30, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
    )
    leaf = items_ID.clone().requires_grad_()
    (slope_ID,) = torch.autograd.grad(direct(leaf), leaf)
    here = Spreadout(0.01, relative=False).adjust_update(
        view(items_ID), {"items": step_CID.mean(0), "w": torch.ones(2)}
    )
    torch.testing.assert_close(
        here["items"], (step_CID - 0.01 * slope_ID).mean(0), rtol=1e-9, atol=1e-12
    )
    assert torch.equal(here["w"], torch.ones(2))


def test_a_relative_weight_means_the_same_on_every_catalogue() -> None:
    assert Spreadout(0.4).rate(3416, 64) == pytest.approx(0.4 / 427, rel=1e-3)
    for n_items in (200, 2000):
        items_ID = torch.randn(n_items, 16, generator=torch.Generator().manual_seed(3))
        assert Spreadout(0.4).rate(n_items, 16) * float(spread(items_ID)) == pytest.approx(
            0.4, rel=0.05
        )


def one_list(values: list[int], u_CD: Tensor, items_ID: Tensor, hinge: PositiveHinge) -> Tensor:
    lists = Ragged.of([values])
    made = hinge.examples(lists, lists, len(items_ID), Rng.of(0, 1, torch.tensor([0])))
    n, real = len(items_ID), torch.ones(1, len(items_ID), dtype=torch.bool)
    slot = made.slot[None] if made.slot is not None else None
    batch = Batch(
        torch.arange(n)[None],
        real,
        made.items.values[None],
        made.label[None],
        made.weight[None],
        slot,
    )
    params = {"user": u_CD, "items": items_ID[None]}
    return hinge.loss(
        MF(2), params, batch, hinge.prepare(batch), Rng.of(0, 1, torch.tensor([0])), None
    )


def test_the_hinge_by_hand() -> None:
    """Cosines 1, 0.8 and -0.6 with a margin of 0.9: 0 + 0.1^2 + 1.5^2, whatever the lengths."""
    u_CD, items_ID = torch.tensor([[3.0, 4.0]]), torch.tensor([[6.0, 8.0], [0.0, 2.0], [-1.0, 0.0]])
    total = one_list([0, 1, 2], u_CD, items_ID, PositiveHinge(reduction="sum"))
    assert total.tolist() == [pytest.approx(0.01 + 2.25)]
    assert one_list([0, 1, 2], u_CD, items_ID, PositiveHinge()).tolist() == [
        pytest.approx(2.26 / 3)
    ]


def test_near_enough_has_no_gradient() -> None:
    u_CD, items_ID = (
        torch.tensor([[3.0, 4.0]]).requires_grad_(),
        torch.tensor([[3.0, 3.5], [0.0, 1.0]]),
    )
    (slope,) = torch.autograd.grad(one_list([0], u_CD, items_ID, PositiveHinge()).sum(), u_CD)
    assert torch.equal(slope, torch.zeros(1, 2))
    (slope,) = torch.autograd.grad(one_list([1], u_CD, items_ID, PositiveHinge()).sum(), u_CD)
    assert float(slope.abs().max()) > 0


def test_the_loss_of_an_example_does_not_depend_on_its_company() -> None:
    u_CD, items_ID = torch.randn(1, 2), torch.randn(9, 2)
    hinge = PositiveHinge(reduction="sum")
    parts = [one_list(part, u_CD, items_ID, hinge) for part in ([1, 4], [7, 2, 2])]
    torch.testing.assert_close(
        one_list([1, 4, 7, 2, 2], u_CD, items_ID, hinge), parts[0] + parts[1]
    )


def test_scores_are_cosines_where_asked() -> None:
    u_CD, v_CLD = torch.randn(2, 4), torch.randn(2, 3, 4)
    torch.testing.assert_close(
        cosine(u_CD, v_CLD), F.cosine_similarity(u_CD[:, None], v_CLD, dim=-1)
    )
    for model in (
        MF(4, cosine=True),
        GRU(4, cosine=True),
        SASRec(4, cosine=True),
        BERT4Rec(4, cosine=True),
    ):
        torch.testing.assert_close(model.score({}, u_CD, v_CLD), cosine(u_CD, v_CLD))


def closeness(weight: float, model: Model) -> float:
    """Mean cosine between items after some rounds."""
    gen = torch.Generator().manual_seed(0)
    lists = Ragged.of([torch.randperm(20, generator=gen)[:8].tolist() for _ in range(16)])
    avoid = Ragged.of([sorted(lists.take(torch.tensor([c])).values.tolist()) for c in range(16)])
    method = bil(model, Catalogue(20), Spreadout(weight), rate=0.05)
    program = Program(model, method.objective, method.catalogue, method.solver, method.mechanisms)
    fleet = SimulatedFleet(program, LocalData(TrainingData(lists, avoid)))
    server = enrol(start(method), fleet, method)
    for number in range(1, 81):
        server, _ = run_round(server, fleet, method, Round(number, fleet.ids_N))
    z_ID = F.normalize(server.public["items"], dim=1)
    return float(((z_ID @ z_ID.mT).sum() - 20) / 380)


@pytest.mark.parametrize(
    "model", [MF(8), pytest.param(GRU(8), marks=pytest.mark.slow)], ids=["MF", "GRU"]
)
def test_without_the_spread_all_items_fall_together(model: Model) -> None:
    assert closeness(0, model) > 0.7
    assert abs(closeness(4, model)) < 0.15


def test_impossible_options_are_errors() -> None:
    with pytest.raises(CoveyError, match="weight"):
        Spreadout(-1.0)
    with pytest.raises(CoveyError, match="margin"):
        PositiveHinge(margin=2.0)
    with pytest.raises(CoveyError, match="last"):
        PositiveHinge(last=0)

"""PDC-FRS: its equations by hand, and the suite that every method inherits."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core import Catalogue, CoveyError, Ragged, Round, Sent, Upload
from covey.examples import Examples
from covey.mechanism import ClientView, ServerView, TrainingData
from covey.methods.pdc_frs import DataContribution, item_gradient, perturbed, user_loss
from covey.methods.titles import Likeness, likeness
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.objectives import Bce
from covey.rng import Rng
from covey.server import Method
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import World

F64 = torch.float64


class TestPdcFrs(Conformance):
    contribution = DataContribution(count=5, aux_epochs=2, aux_lr=0.01, aux_batch=64)

    def method(self, catalogue: Catalogue) -> Method:
        solver = Local("adam", 0.01, epochs=2)
        return Method(NCF(4, (4, 3, 2), scale=0.1), Bce(), catalogue, solver, (self.contribution,))

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        full = self.method(catalogue)
        off = replace(self.contribution, count=0, user_weight=0.0, item_weight=0.0)
        return replace(full, mechanisms=(off,)), replace(full, mechanisms=())


class TestPdcFrsWithTitles(TestPdcFrs):
    def world(self) -> World:
        world = super().world()
        titles = tuple(f"{['red', 'blue', 'green'][i % 3]} {['cat', 'dog', 'cow'][i % 5 % 3]} {i}" for i in range(40))
        return replace(world, catalogue=replace(world.catalogue, titles=titles))


def vectors(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=F64)


def server_view(n_items: int, **options: Any) -> ServerView:
    model = MF(3, scale=0.5)
    public = {k: v.double() for k, v in model.public(n_items, Rng.server(0, 0, "public")).items()}
    around, rng = Round(1, torch.arange(3)), Rng.of(0, 1, torch.arange(3))
    view = ServerView(public, {}, around, rng, Rng.server(0, 1, "x"), model, Bce(), Catalogue(n_items))
    return replace(view, **options)


def enrolment(ids: list[int], lists: list[list[int]]) -> Upload:
    return Upload(torch.tensor(ids), torch.ones(len(ids)), extra={"contribution": {"list": Ragged.of(lists)}})


def test_exponential_mechanism() -> None:  # Eq. 5
    """Three items at cosines 1, 0 and -1 of the first: S ranges over 2, so epsilon 4 weighs exp(S)."""
    like = Likeness(3, vectors([1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]), sensitivity=2.0)
    weights = [math.exp(1), math.exp(0), math.exp(-1)]
    edges = torch.tensor([w / sum(weights) for w in weights], dtype=F64).cumsum(0)
    unit_T = torch.tensor(
        [0.0, edges[0] - 1e-9, edges[0] + 1e-9, edges[1] - 1e-9, edges[1] + 1e-9, 1 - 1e-9], dtype=F64
    )
    assert perturbed(torch.zeros(6).long(), unit_T, like, 4.0).tolist() == [0, 0, 1, 1, 2, 2]


def test_every_item_has_its_own_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.methods.pdc_frs.ROWS", 2)
    v_ID = F.normalize(Rng.of(0, 0, torch.tensor([5])).normal(5, 2, dtype=F64)[0], dim=1)
    like = Likeness(5, v_ID, sensitivity=2.0)
    items_T = torch.arange(5).repeat(20_000)
    unit_T = Rng.of(1, 0, torch.tensor([5])).uniform(len(items_T))[0]
    drawn_T = perturbed(items_T, unit_T, like, 8.0)
    share_II = torch.zeros(5, 5, dtype=F64).index_put_((items_T, drawn_T), torch.tensor(1 / 20_000, dtype=F64), True)
    want_II = (8.0 * (v_ID @ v_ID.mT) / 4.0).softmax(1)
    torch.testing.assert_close(share_II, want_II, rtol=0, atol=0.015)


def test_privacy_of_one_item() -> None:
    """No output is more than e^epsilon likelier from one item than from another."""
    like = likeness(("a red cat", "a red dog", "blue sky", "the sea"), 4)
    p_II = (3.0 / (2 * like.sensitivity) * like.rows(torch.arange(4))).softmax(1)
    assert float((p_II.max(0).values / p_II.min(0).values).max()) <= math.exp(3.0) + 1e-12


def test_likeness_of_titles() -> None:
    like = likeness(("the red cat", "the red cat", "blue dogs", "", "X"), 5)
    s_II = like.rows(torch.arange(5))
    assert s_II.diagonal().tolist() == [1] * 5
    assert float(s_II[0, 1]) == pytest.approx(1)
    assert float(s_II[0, 2]) == pytest.approx(0, abs=1e-9)
    assert like.sensitivity == pytest.approx(1 - float(s_II.min()))


def test_likeness_without_titles_is_randomised_response() -> None:
    like = likeness((), 4)
    assert like.sensitivity == 1
    assert like.rows(torch.tensor([2])).tolist() == [[0, 0, 1, 0]]
    with pytest.raises(CoveyError, match="3 titles for 4 items"):
        likeness(("a", "b", "c"), 4)


def test_asked_again_a_client_says_the_same() -> None:
    items = Ragged.of([[1, 2, 3], [], [4, 4, 5, 6]])
    ask = lambda round, pick: DataContribution().enrol(
        ClientView(
            {},
            TrainingData(items.take(pick), items.take(pick)),
            Sent(),
            Rng.of(0, round, pick),
            MF(),
            Bce(),
            Catalogue(50),
        )
    )["list"]
    together = ask(0, torch.arange(3))
    assert together.lengths.tolist() == [3, 0, 4]
    assert ask(7, torch.arange(3)).values.tolist() == together.values.tolist()
    assert ask(0, torch.tensor([2])).values.tolist() == together.values[3:].tolist()


def test_item_contrast() -> None:  # Eq. 8
    """Against central differences of the loss as it is printed, averaged over items."""
    v_ID, aux_ID = vectors([1.0, 0.0], [1.0, 1.0]), vectors([2.0, 0.0], [0.0, 3.0])

    def loss(v_ID: Tensor) -> float:
        cosine = lambda i, j: float(v_ID[i] @ aux_ID[j] / v_ID[i].norm() / aux_ID[j].norm())
        return sum(-math.log(math.exp(cosine(i, i)) / sum(math.exp(cosine(i, j)) for j in (0, 1))) for i in (0, 1)) / 2

    assert loss(v_ID) == pytest.approx((math.log(1 + math.exp(-1)) + math.log(2)) / 2)
    grad_ID = item_gradient(v_ID, aux_ID, 1.0)
    for i in range(2):
        for d in range(2):
            step = torch.zeros(2, 2, dtype=F64)
            step[i, d] = 1e-5
            assert float(grad_ID[i, d]) == pytest.approx((loss(v_ID + step) - loss(v_ID - step)) / 2e-5, abs=1e-8)


def test_polish_is_one_step_when_a_pass_closes() -> None:
    mine = DataContribution(item_weight=0.5, item_lr=2.0)
    view = server_view(4)
    view = replace(view, memory=mine.init(view, enrolment([0, 1], [[0, 1], [2]])))
    _, model = mine.polish(view, dict(view.public))
    want = view.public["items"] - item_gradient(view.public["items"], view.memory["aux/items"][0], 0.2)
    torch.testing.assert_close(model["items"], want)
    midway = replace(view, round=replace(view.round, closes_epoch=False))
    assert mine.polish(midway, model)[1] is model


def test_user_contrast() -> None:  # Eq. 9
    """Three users at cosines 1, 0, -1; tau = 0.5. The second client contributed nothing."""
    u_CD, users_MD = vectors([2.0, 0.0], [1.0, 1.0]), vectors([1.0, 0.0], [0.0, 1.0], [-1.0, 0.0])
    loss_C = user_loss(u_CD, users_MD, torch.tensor([1, -1]), 0.5)
    assert loss_C.tolist() == pytest.approx([-math.log(1 / (math.exp(2) + 1 + math.exp(-2))), 0.0])


def test_augmentation() -> None:  # Eq. 7
    """Item 1 is the client's own and stays hard; the sampled negative 7 contradicts what was sent."""
    own = Ragged.of([[1, 2], [3]])
    made = Examples(Ragged.of([[1, 7, 2, 8], [3, 7]]), torch.tensor([1.0, 0, 1, 0, 1, 0]), torch.ones(6))
    sent = Sent(
        each={
            "items": Ragged.of([[1, 7], [9]]),
            "scores": Ragged(torch.tensor([0.9, 0.6, 0.8]), torch.tensor([0, 2, 3])),
        }
    )
    view = ClientView({}, TrainingData(own, own), sent, Rng.of(0, 0, torch.arange(2)), MF(), Bce(), Catalogue(10))
    out = DataContribution().augment(view, made)
    assert out.items.lengths.tolist() == [4, 3]
    assert out.items.values.tolist() == [1, 2, 8, 7, 3, 7, 9]
    assert out.label.tolist() == pytest.approx([1, 1, 0, 0.6, 1, 0, 0.8])
    assert out.weight.tolist() == [1] * 7


def test_best_items_are_those_not_contributed() -> None:  # Eq. 6
    mine, view = DataContribution(count=2), server_view(4)
    memory = mine.init(view, enrolment([0, 2], [[3], [0, 1, 2, 3]]))
    memory |= {"aux/user": vectors([1.0, 0, 0], [1.0, 0, 0])}
    memory |= {"aux/items": vectors([0.1, 0, 0], [0.3, 0, 0], [0.2, 0, 0], [0.9, 0, 0])[None]}
    sent = mine.send(replace(view, memory=memory))
    assert sent.each["items"].lengths.tolist() == [2, 0, 0]  # client 2 contributed everything, client 1 is unknown
    assert sent.each["items"].values.tolist() == [1, 2]
    assert sent.each["scores"].values.tolist() == pytest.approx([1 / (1 + math.exp(-0.3)), 1 / (1 + math.exp(-0.2))])
    assert sent.each["me"].tolist() == [0, -1, 1]


def test_auxiliary_model_learns_the_lists() -> None:
    mine = DataContribution(aux_epochs=60, aux_lr=0.05, aux_batch=10)
    view = server_view(12)
    lists = [[0, 1, 2, 3], [0, 1, 2], [8, 9, 10, 11], [9, 10, 11]]
    view = replace(view, memory=mine.init(view, enrolment([0, 1, 2, 3], lists)))
    memory = mine.begin(view)
    score_MI = memory["aux/user"] @ memory["aux/items"][0].mT
    assert all(int(score_MI[m].argmax()) in lists[m] for m in range(4))
    midway = replace(view, round=replace(view.round, opens_epoch=False))
    assert mine.begin(midway) is view.memory


def test_late_joiners_are_added_once() -> None:
    mine, view = DataContribution(), server_view(10)
    memory = mine.init(view, enrolment([5, 1], [[4, 2, 2], [7, 99, -1]]))
    assert (memory["list"].tolist(), memory["offsets"].tolist()) == ([2, 4, 7], [0, 2, 3])
    later = mine.admit(replace(view, memory=memory), enrolment([3, 5], [[9], [0]]))
    assert later["ids"].tolist() == [5, 1, 3]
    assert (later["list"].tolist(), later["offsets"].tolist()) == ([2, 4, 7, 9], [0, 2, 3, 4])
    assert torch.equal(later["aux/user"][:2], memory["aux/user"]) and len(later["aux/user"]) == 3
    assert float(later["sensitivity"]) == 1


def test_nobody_contributed() -> None:
    mine, view = DataContribution(), server_view(10)
    view = replace(view, memory=mine.init(view, Upload(torch.zeros(0).long(), torch.zeros(0))))
    assert mine.begin(view) is view.memory
    assert mine.send(view) == Sent()


def test_declares_the_budget_of_an_item_and_the_length() -> None:
    budget, length = DataContribution(epsilon=3.0).discloses()
    assert (budget.name, budget.epsilon, budget.unit) == ("contribution/list", 3.0, "item")
    assert (length.name, length.epsilon) == ("contribution/list/length", math.inf)

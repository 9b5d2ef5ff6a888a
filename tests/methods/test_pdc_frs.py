"""PDC-FRS: its equations by hand, and the suite that every method inherits."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.examples import Examples
from covey.contract.views import ClientView, ServerView, TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Round, Sent, Upload
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.method import Method
from covey.methods.pdc_frs import DataContribution, item_gradient, user_loss
from covey.methods.pdc_frs_auxiliary import synthetic_users
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.objectives.next_item import NextItemSoftmax
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import World

F64 = torch.float64
MINE = DataContribution(similarity="itself")


class TestPdcFrs(Conformance):
    contribution = DataContribution(
        similarity="itself", count=5, aux_epochs=2, aux_lr=0.01, aux_batch=64
    )

    def method(self, catalogue: Catalogue) -> Method:
        solver = Local("adam", 0.01, epochs=2)
        return Method(NCF(4, (4, 3, 2), scale=0.1), Bce(), catalogue, solver, (self.contribution,))

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        full = self.method(catalogue)
        off = replace(self.contribution, count=0, user_weight=0.0, item_weight=0.0)
        return replace(full, mechanisms=(off,)), replace(full, mechanisms=())


class TestPdcFrsWithTitles(TestPdcFrs):
    contribution = replace(
        TestPdcFrs.contribution, similarity="words", labels="hard", bound="clipped"
    )

    def world(self) -> World:
        world = super().world()
        titles = tuple(
            f"{['red', 'blue', 'green'][i % 3]} {['cat', 'dog', 'cow'][i % 5 % 3]} {i}"
            for i in range(40)
        )
        return replace(world, catalogue=replace(world.catalogue, titles=titles))


class TestPdcFrsAgainstSome(TestPdcFrs):
    """Lists of equal length, a few rotating negatives, similarity by the item table."""

    contribution = replace(
        TestPdcFrs.contribution, against="some", others=3, length=4, similarity="items"
    )


@pytest.mark.slow
class TestPdcFrsAgainstMadeUp(TestPdcFrs):
    contribution = replace(
        TestPdcFrs.contribution, against="synthetic", others=4, contribute="uniform"
    )


def vectors(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=F64)


def server_view(n_items: int, **options: Any) -> ServerView:
    model = MF(3, scale=0.5)
    public = {k: v.double() for k, v in model.public(n_items, Rng.server(0, 0, "public")).items()}
    view = ServerView(
        public, {}, Round(1, torch.arange(3)), 0, "x", model, Bce(), Catalogue(n_items)
    )
    return replace(view, **options)


def enrolment(ids: list[int], lists: list[list[int]]) -> Upload:
    return Upload(
        torch.tensor(ids), torch.ones(len(ids)), extra={"contribution": {"list": Ragged.of(lists)}}
    )


def test_asked_again_a_client_says_the_same() -> None:
    items = Ragged.of([[1, 2, 3], [], [4, 4, 5, 6]])

    def ask(round: int, pick: Tensor) -> Ragged:
        data, rng = TrainingData(items.take(pick), items.take(pick)), Rng.of(0, round, pick)
        lists = MINE.enrol(ClientView({}, data, Sent(), rng, MF(), Bce(), Catalogue(50)))["list"]
        assert isinstance(lists, Ragged)
        return lists

    together = ask(0, torch.arange(3))
    assert together.lengths.tolist() == [3, 0, 4]
    assert ask(7, torch.arange(3)).values.tolist() == together.values.tolist()
    assert ask(0, torch.tensor([2])).values.tolist() == together.values[3:].tolist()


def test_item_contrast() -> None:  # Eq. 8
    """Against central differences of the loss as it is printed, averaged over items."""
    v_ID, aux_ID = vectors([1.0, 0.0], [1.0, 1.0]), vectors([2.0, 0.0], [0.0, 3.0])

    def loss(v_ID: Tensor) -> float:
        e = [
            [math.exp(v_ID[i] @ aux_ID[j] / v_ID[i].norm() / aux_ID[j].norm()) for j in (0, 1)]
            for i in (0, 1)
        ]
        return sum(-math.log(e[i][i] / sum(e[i])) for i in (0, 1)) / 2

    assert loss(v_ID) == pytest.approx((math.log(1 + math.exp(-1)) + math.log(2)) / 2)
    grad_ID = item_gradient(v_ID, aux_ID, 1.0)
    for i in range(2):
        for d in range(2):
            step = torch.zeros(2, 2, dtype=F64)
            step[i, d] = 1e-5
            assert float(grad_ID[i, d]) == pytest.approx(
                (loss(v_ID + step) - loss(v_ID - step)) / 2e-5, abs=1e-8
            )


def test_polish_is_one_step_when_a_pass_closes() -> None:
    mine = replace(MINE, item_weight=0.5, item_lr=2.0)
    view = server_view(4)
    view = replace(view, state=mine.init_state(view, enrolment([0, 1], [[0, 1], [2]])))
    _, model = mine.adjust_model(view, dict(view.public))
    want = view.public["items"] - item_gradient(
        view.public["items"], view.state["aux/items"][0], 0.2
    )
    torch.testing.assert_close(model["items"], want)
    midway = replace(view, round=replace(view.round, closes_epoch=False))
    assert mine.adjust_model(midway, model)[1] is model


def test_user_contrast() -> None:  # Eq. 9
    """Three users at cosines 1, 0, -1; tau = 0.5. The second client contributed nothing."""
    u_CD, users_MD = vectors([2.0, 0.0], [1.0, 1.0]), vectors([1.0, 0.0], [0.0, 1.0], [-1.0, 0.0])
    loss_C = user_loss(u_CD, users_MD, torch.tensor([1, -1]), 0.5)
    assert loss_C.tolist() == pytest.approx([-math.log(1 / (math.exp(2) + 1 + math.exp(-2))), 0.0])


def test_user_contrast_with_some() -> None:  # Eq. 9
    """The client's own vector comes beside two others; where it is among them it counts once."""
    u_CD, own_CD = (
        vectors([2.0, 0.0], [2.0, 0.0], [1.0, 1.0]),
        vectors([0.0, 1.0], [0.0, 1.0], [0.0, 0.0]),
    )
    users_KD = vectors([1.0, 0.0], [0.0, 1.0])
    loss_C = user_loss(u_CD, users_KD, torch.tensor([-1, 1, -1]), 0.5, own_CD)
    assert loss_C.tolist() == pytest.approx(
        [math.log(1 + math.exp(2) + 1), math.log(1 + math.exp(2)), 0.0]
    )


def told_apart(against: str, number: int = 1, **options: Any) -> tuple[Sent, Any]:
    mine = replace(MINE, against=against, count=0, **options)
    view = server_view(10, round=Round(number, torch.arange(3)))
    memory = mine.init_state(view, enrolment([0, 2, 5, 6], [[3], [0], [1], [2]]))
    memory["aux/user"] = torch.eye(4, dtype=F64)[:, :3] * 2 + 0.1
    return mine.send(replace(view, state=memory)), memory["aux/user"]


def test_some_others_rotate_and_do_not_name_everybody() -> None:
    sent, users_MD = told_apart("some", others=2)
    unit_MD = F.normalize(users_MD, dim=1)
    assert sent.shared["users"].shape == (2, 3)
    torch.testing.assert_close(sent.each["own"][[0, 2]], unit_MD[[0, 1]])
    assert sent.each["own"][1].tolist() == [0, 0, 0]  # client 1 is unknown
    for client, row in ((0, 0), (2, 1)):
        at = int(sent.each["me"][client])
        same = (sent.shared["users"] - unit_MD[row]).norm(dim=1) < 1e-12
        assert same.tolist() == [k == at for k in range(2)]
    shown = {
        tuple(told_apart("some", number, others=2)[0].shared["users"].flatten().tolist())
        for number in range(12)
    }
    assert len(shown) > 3


def test_made_up_others_are_nobody_and_spread_alike() -> None:
    sent, users_MD = told_apart("synthetic", others=5)
    unit_MD = F.normalize(users_MD, dim=1)
    assert sent.shared["users"].shape == (5, 3)
    assert float(torch.cdist(sent.shared["users"], unit_MD).min()) > 1e-6
    u_MD = vectors([1.0, 2.0], [3.0, 2.5], [5.0, 0.0], [-1.0, 4.0])
    many_KD = synthetic_users(u_MD, 200_000, Rng.server(0, 1, "x"))
    torch.testing.assert_close(many_KD.mean(0), u_MD.mean(0), rtol=0, atol=0.03)
    torch.testing.assert_close(many_KD.mT.cov(), u_MD.mT.cov(), rtol=0, atol=0.06)


def test_what_is_told() -> None:
    """Delta of four unlike items is 1: epsilon 2 ln 4 keeps one with e^(ln 4) / (e^(ln 4) + 3)."""
    memory = replace(MINE, epsilon=2 * math.log(4)).init_state(server_view(4), None)
    assert float(memory["tell/sensitivity"]) == 1
    assert float(memory["tell/items kept"]) == pytest.approx(4 / 7)
    clean = replace(MINE, contribute="clean").init_state(server_view(4), None)
    assert float(clean["tell/items kept"]) == 1 and "tell/sensitivity" not in clean
    assert (
        float(
            replace(MINE, contribute="uniform").init_state(server_view(4), None)["tell/items kept"]
        )
        == 0.25
    )


def test_augmentation() -> None:  # Eq. 7
    """Item 1 is the client's own and stays hard; the drawn negative 7 contradicts what was sent."""
    own = Ragged.of([[1, 2], [3]])
    made = Examples(
        Ragged.of([[1, 7, 2, 8], [3, 7]]), torch.tensor([1.0, 0, 1, 0, 1, 0]), torch.ones(6)
    )
    sent = Sent(
        each={
            "items": Ragged.of([[1, 7], [9]]),
            "scores": Ragged(torch.tensor([0.9, 0.6, 0.8]), torch.tensor([0, 2, 3])),
        }
    )
    view = ClientView(
        {}, TrainingData(own, own), sent, Rng.of(0, 0, torch.arange(2)), MF(), Bce(), Catalogue(10)
    )
    out = MINE.augment(view, made)
    assert out.items.lengths.tolist() == [4, 3]
    assert out.items.values.tolist() == [1, 2, 8, 7, 3, 7, 9]
    assert out.label.tolist() == pytest.approx([1, 1, 0, 0.6, 1, 0, 0.8])
    assert out.weight.tolist() == [1] * 7
    hard = replace(MINE, labels="hard").augment(view, made)
    assert hard.label.tolist() == [1, 1, 0, 1, 1, 0, 1]


def test_best_items_are_those_not_contributed() -> None:  # Eq. 6
    mine, view = replace(MINE, count=2), server_view(4)
    memory = mine.init_state(view, enrolment([0, 2], [[3], [0, 1, 2, 3]]))
    memory |= {"aux/user": vectors([1.0, 0, 0], [1.0, 0, 0])}
    memory |= {"aux/items": vectors([0.1, 0, 0], [0.3, 0, 0], [0.2, 0, 0], [0.9, 0, 0])[None]}
    sent = mine.send(replace(view, state=memory))
    assert sent.each["items"].lengths.tolist() == [
        2,
        0,
        0,
    ]  # client 2 contributed everything, client 1 is unknown
    assert sent.each["items"].values.tolist() == [1, 2]
    assert sent.each["scores"].values.tolist() == pytest.approx(
        [1 / (1 + math.exp(-0.3)), 1 / (1 + math.exp(-0.2))]
    )
    assert sent.each["me"].tolist() == [0, -1, 1]


def test_auxiliary_model_learns_the_lists() -> None:
    mine = replace(MINE, aux_epochs=60, aux_lr=0.05, aux_batch=10)
    view = server_view(12)
    lists = [[0, 1, 2, 3], [0, 1, 2], [8, 9, 10, 11], [9, 10, 11]]
    view = replace(view, state=mine.init_state(view, enrolment([0, 1, 2, 3], lists)))
    memory = mine.begin_round(view)
    score_MI = memory["aux/user"] @ memory["aux/items"][0].mT
    assert all(int(score_MI[m].argmax()) in lists[m] for m in range(4))
    midway = replace(view, round=replace(view.round, opens_epoch=False))
    assert mine.begin_round(midway) is view.state
    unused = replace(mine, count=0, user_weight=0.0, item_weight=0.0)
    assert unused.begin_round(view) is view.state


def test_late_joiners_are_added_once() -> None:
    mine, view = MINE, server_view(10)
    memory = mine.init_state(view, enrolment([5, 1], [[4, 2, 2], [7, 99, -1]]))
    assert (memory["list"].tolist(), memory["offsets"].tolist()) == ([2, 4, 7], [0, 2, 3])
    later = mine.admit_clients(replace(view, state=memory), enrolment([3, 5], [[9], [0]]))
    assert later["ids"].tolist() == [5, 1, 3]
    assert (later["list"].tolist(), later["offsets"].tolist()) == ([2, 4, 7, 9], [0, 2, 3, 4])
    assert torch.equal(later["aux/user"][:2], memory["aux/user"]) and len(later["aux/user"]) == 3
    assert float(later["tell/sensitivity"]) == 1


def test_nobody_contributed() -> None:
    mine, view = MINE, server_view(10)
    view = replace(view, state=mine.init_state(view, Upload(torch.zeros(0).long(), torch.zeros(0))))
    assert mine.begin_round(view) is view.state
    assert mine.send(view) == Sent()


def test_declares_the_budget_of_an_item_and_the_length() -> None:
    budget, length = replace(MINE, epsilon=3.0).disclosures()
    assert (budget.name, budget.epsilon, budget.unit) == ("contribution/list", 3.0, "item")
    assert (length.name, length.epsilon) == ("contribution/list/length", math.inf)
    (fixed,) = replace(MINE, epsilon=3.0, length=10).disclosures()
    assert (fixed.name, fixed.epsilon, fixed.unit) == ("contribution/list", 30.0, "message")


@pytest.mark.parametrize("how", ["uniform", "clean"])
def test_controls_claim_no_guarantee(how: str) -> None:
    assert {d.epsilon for d in replace(MINE, contribute=how).disclosures()} == {math.inf}


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf])
def test_a_guarantee_needs_a_budget(epsilon: float) -> None:
    with pytest.raises(CoveyError, match=r"over 0 and finite.*'uniform'.*'clean'"):
        DataContribution(epsilon=epsilon)
    assert DataContribution(epsilon=epsilon, contribute="uniform").count == 30


def test_scored_items_need_examples_of_one_item_each() -> None:
    view = server_view(10, objective=NextItemSoftmax())
    with pytest.raises(CoveyError, match="set count = 0"):
        MINE.init_state(view, None)
    assert replace(MINE, count=0).init_state(view, None)


def test_what_the_auxiliary_model_cannot_have() -> None:
    with pytest.raises(CoveyError, match="NCF keeps b0"):
        MINE.init_state(server_view(10, model=NCF(3, (2,), keep_mlp=True)), None)
    lists = Ragged.of([[1]])
    view = ClientView(
        {},
        TrainingData(lists, lists),
        Sent(),
        Rng.of(0, 0, torch.arange(1)),
        MF(keep_items=True),
        Bce(),
        Catalogue(9),
    )
    with pytest.raises(CoveyError, match="its own item table"):
        replace(MINE, similarity="items").enrol(view)


def test_without_titles_a_run_says_what_to_do() -> None:
    with pytest.raises(CoveyError, match=r"no titles.*covey data import.*'itself'.*'items'"):
        DataContribution().init_state(server_view(10), None)

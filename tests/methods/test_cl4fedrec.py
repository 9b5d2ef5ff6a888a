"""CL4FedRec: its equations by hand, and the suite that every method inherits."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.examples import Batch
from covey.contract.views import ClientView, ServerView, TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Round, Sent
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.method import Method
from covey.methods import cl4fedrec
from covey.methods.cl4fedrec import Contrast, PopularityRegulariser, repulsion, user_loss
from covey.methods.views import item_loss, noise, packs
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance

F64 = torch.float64


class TestCL4FedRec(Conformance):
    contrast = Contrast(users=5, history=6, view_lr=0.01)
    regulariser = PopularityRegulariser(hot=6, sample=10, lr=0.01)

    def method(self, catalogue: Catalogue) -> Method:
        solver = Local("adam", 0.01, epochs=2)
        return Method(
            NCF(4, (4, 3), scale=0.1), Bce(), catalogue, solver, (self.contrast, self.regulariser)
        )

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        full = self.method(catalogue)
        off = (
            replace(self.contrast, user_weight=0.0, item_weight=0.0),
            replace(self.regulariser, steps=0),
        )
        return replace(full, mechanisms=off), replace(full, mechanisms=())


class TestCL4FedRecInMiniBatches(TestCL4FedRec):
    def method(self, catalogue: Catalogue) -> Method:
        return replace(super().method(catalogue), solver=Local("adam", 0.01, epochs=2, batch=16))


class TestCL4FedRecOtherReadings(TestCL4FedRec):
    contrast = Contrast(
        5, 6, "uniform", fit_first=False, items="positives", reduction="sum", views="each step"
    )
    regulariser = PopularityRegulariser(hot_share=0.2, sample=0, freeze_hot=True, lr=0.01)


class TestCL4FedRecNoisyItems(TestCL4FedRec):
    contrast = Contrast(5, 6, refit_steps=0, item_views="noise", items="positives")


def server_view(model: NCF | MF, n_items: int, **options: object) -> ServerView:
    public = model.public(n_items, Rng.server(0, 0, "public"))
    catalogue = Catalogue(n_items, popularity_I=torch.arange(n_items).float())
    around = Round(1, torch.zeros(0, dtype=torch.long))
    view = ServerView(public, {}, around, 0, "x", model, Bce(), catalogue)
    return replace(view, **options)  # type: ignore[arg-type]


def client_view(model: NCF, params: dict[str, Tensor], batch: Batch) -> ClientView:
    none = Ragged.of([[]] * len(batch.label_CL))
    data, rng = TrainingData(none, none), Rng.of(0, 1, torch.arange(len(batch.label_CL)))
    return ClientView(params, data, Sent(), rng, model, Bce(), Catalogue(9), batch)


def test_user_noise() -> None:  # Eq. 6
    u_CD = torch.tensor([[0.3, -0.2, 0.5], [-1.0, 0.0, 2.0]], dtype=F64)
    rng = Rng.of(3, 1, torch.arange(2))
    z_CD = rng.uniform(3)
    e_CD = noise(u_CD, 0.1, rng)
    want = [0.1 * float(z) / math.sqrt(float((z_CD[0] ** 2).sum())) for z in z_CD[0]]
    assert e_CD[0].tolist() == pytest.approx([want[0], -want[1], want[2]])
    assert float(e_CD[0].norm()) == pytest.approx(0.1)
    assert float(e_CD[1, 1]) == 0
    long_CD = noise(u_CD, 0.1, rng, relative=True)
    assert float(long_CD[0].norm()) == pytest.approx(0.1 * math.sqrt(0.38))


def rows64(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=F64)


def test_user_loss() -> None:  # Eq. 7
    """u = (1, 0), its views are (1, 0) and (1, 1), the synthetic users (0, 1) and (-2, 0)."""
    users_SD = rows64([0.0, 1.0], [-2.0, 0.0])
    loss_C = user_loss(rows64([1.0, 0.0]), rows64([0.0, 0.0]), rows64([0.0, 1.0]), users_SD, 0.5)
    same = math.exp(math.sqrt(0.5) / 0.5)
    assert loss_C.tolist() == pytest.approx([-math.log(same / (same + math.exp(0) + math.exp(-2)))])


def test_user_loss_has_the_slope_of_its_value() -> None:
    rng = Rng.of(3, 1, torch.arange(4))
    u_CD, one_CD, two_CD, s_SD = (rng.fold(k).normal(3, dtype=F64) for k in range(4))
    u_CD.requires_grad_()
    assert torch.autograd.gradcheck(lambda u_CD: user_loss(u_CD, one_CD, two_CD, s_SD, 0.2), u_CD)


def test_item_views_are_a_first_step_of_adam() -> None:  # Eq. 8
    model, rng = NCF(3, (4, 2), scale=0.5), Rng.of(0, 0, torch.arange(2))
    params = {k: v[None].double() for k, v in model.public(9, Rng.server(0, 0, "p")).items()}
    params["items"] = rng.normal(4, 3, dtype=F64)
    params["user"] = rng.fold(1).normal(3, dtype=F64)
    weight_CL = torch.tensor([[1.0, 2, 1, 0], [1, 1, 1, 1]])
    label_CL = torch.tensor([[1.0, 0, 0, 0], [1, 1, 0, 0]])
    batch = Batch(torch.zeros(2, 4).long(), torch.ones(2, 4).bool(), None, label_CL, weight_CL)
    view, mine = client_view(model, params, batch), Contrast(view_lr=0.01)
    ready = mine.prepare(view)
    leaf = params["items"].clone().requires_grad_()
    adam = torch.optim.Adam([leaf], lr=0.01)
    view.objective_loss({**params, "items": leaf}, params["user"] + ready["one"]).sum().backward()
    adam.step()
    torch.testing.assert_close(params["items"] + ready["items one"], leaf.detach())
    assert ready["rows"].tolist() == [[True, True, True, False], [True] * 4]
    assert ready["items one"][0, 3].abs().max() == 0


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_views_of_positives_are_those_of_all_items(reduction: Any) -> None:
    """A mean is over all examples of a client, also of a client whose positives are few or none."""
    model, rng = NCF(3, (4, 2), scale=0.5), Rng.of(0, 0, torch.arange(4))
    params = {k: v[None].double() for k, v in model.public(9, Rng.server(0, 0, "p")).items()}
    params |= {"items": rng.normal(6, 3, dtype=F64), "user": rng.fold(1).normal(3, dtype=F64)}
    weight_CL = torch.tensor([[1.0, 2, 1, 0, 1, 3]] * 4)
    label_CL = torch.tensor([[1.0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0.5], [0] * 6, [1] * 6])
    batch = Batch(torch.zeros(4, 6).long(), torch.ones(4, 6).bool(), None, label_CL, weight_CL)
    view = replace(client_view(model, params, batch), objective=Bce(reduction=reduction))
    whole = Contrast(view_step="sgd").prepare(view)
    some = Contrast(view_step="sgd", items="positives").prepare(view)
    (pack,) = packs(some)
    assert pack.clients.tolist() == [0, 1, 3]
    for name in ("one", "two"):
        want = pack.of(whole[f"items {name}"])[pack.some_CP]
        torch.testing.assert_close(some[f"{pack.key}/{name}"][pack.some_CP], want)


def test_item_views_by_plain_gradient_or_noise() -> None:
    """A gradient step is the gradient times -0.01; Table 5's views are noise of length eta."""
    model, rng = NCF(3, (4, 2), scale=0.5), Rng.of(0, 0, torch.arange(2))
    params = {k: v[None].double() for k, v in model.public(9, Rng.server(0, 0, "p")).items()}
    params |= {"items": rng.normal(4, 3, dtype=F64), "user": rng.fold(1).normal(3, dtype=F64)}
    batch = Batch(
        torch.zeros(2, 4).long(), torch.ones(2, 4).bool(), None, torch.eye(4)[:2], torch.ones(2, 4)
    )
    view = client_view(model, params, batch)
    plain = Contrast(view_step="sgd", view_lr=0.01).prepare(view)
    leaf = params["items"].clone().requires_grad_()
    view.objective_loss({**params, "items": leaf}, params["user"] + plain["one"]).sum().backward()
    assert leaf.grad is not None
    torch.testing.assert_close(plain["items one"], -0.01 * leaf.grad)
    noisy = Contrast(item_views="noise", eta=0.3).prepare(view)
    torch.testing.assert_close(noisy["items two"].norm(dim=2), torch.full((2, 4), 0.3, dtype=F64))
    assert (noisy["items two"] * params["items"] >= 0).all()
    assert not torch.equal(noisy["items one"], noisy["items two"])
    assert set(Contrast(views="each step").prepare(view)) == {"rows"}


def test_loss_is_the_weighted_sum_of_both() -> None:  # Eq. 11
    model, rng = NCF(3, (4, 2)), Rng.of(0, 0, torch.arange(2))
    ready = {name: rng.fold(name).normal(3, dtype=F64) for name in ("one", "two")}
    ready |= {name: rng.fold(name).normal(4, 3, dtype=F64) for name in ("items one", "items two")}
    ready["rows"] = torch.ones(2, 4).bool()
    params = {"items": rng.normal(4, 3, dtype=F64), "user": rng.fold(1).normal(3, dtype=F64)}
    batch = Batch(
        torch.zeros(2, 4).long(), torch.ones(2, 4).bool(), None, torch.ones(2, 4), torch.ones(2, 4)
    )
    s_SD = rng.fold(2).normal(3, dtype=F64)
    view = replace(
        client_view(model, params, batch), prepared=ready, received=Sent({"users": s_SD})
    )
    loss_C = Contrast(user_weight=0.3, item_weight=0.7).loss(view)
    user_C = user_loss(params["user"], ready["one"], ready["two"], s_SD, 0.2)
    v_CRD = params["items"]
    item_C = item_loss(v_CRD + ready["items one"], v_CRD + ready["items two"], ready["rows"], 0.2)
    assert loss_C is not None
    torch.testing.assert_close(loss_C, 0.3 * user_C + 0.7 * item_C)


def test_the_item_contrast_leads_at_the_start() -> None:
    """With the published start, for 100 positives and 400 negatives; at 0.002 both are equal."""
    model, rng = NCF(32, (32, 16), scale=0.01), Rng.of(0, 1, torch.arange(2))
    params = {
        k: v.expand(2, *v.shape) for k, v in model.public(500, Rng.server(0, 0, "public")).items()
    }
    params |= {
        "items": params["items"].clone().requires_grad_(),
        "user": model.private(rng, rng)["user"],
    }
    label_CL = (torch.arange(500) < 100).float().expand(2, -1)
    batch = Batch(
        torch.arange(500).expand(2, -1),
        torch.ones(2, 500).bool(),
        None,
        label_CL,
        torch.ones(2, 500),
    )
    view, slopes = client_view(model, params, batch), []
    for weight in (0.5, 0.002):
        mine = Contrast(user_weight=0.0, item_weight=weight)
        contrast_C = mine.loss(replace(view, prepared=mine.prepare(view)))
        assert contrast_C is not None
        found = [
            torch.autograd.grad(loss_C.sum(), params["items"])[0]
            for loss_C in (contrast_C, view.objective_loss())
        ]
        slopes.append(float(found[0].norm() / found[1].norm()))
    assert slopes[0] > 200
    assert 0.5 < slopes[1] < 2


def test_synthetic_histories_follow_popularity() -> None:  # Eq. 4
    popularity_I = torch.tensor([0.0, 1, 2, 3, 4])
    items_SN = cl4fedrec._draw(popularity_I, 4000, 1, Rng.server(0, 0, "x"))
    share_I = torch.bincount(items_SN.flatten(), minlength=5) / 4000
    assert share_I.tolist() == pytest.approx([0, 0.1, 0.2, 0.3, 0.4], abs=0.03)
    whole_SN = cl4fedrec._draw(popularity_I, 3, 30, Rng.server(0, 0, "x"))
    assert whole_SN.tolist() == [[1, 2, 3, 4]] * 3


def test_synthetic_users_are_fitted_by_adam() -> None:  # Eq. 5
    """Five steps on all examples with 4 negatives for each item, and a frozen public model."""
    mine, view = Contrast(users=6, history=5), server_view(MF(8, scale=0.5), 40)
    memory = mine.init_state(view, None)
    lists = Ragged.of(memory["items"].tolist())
    made = Bce(negatives=4).examples(lists, lists, 40, view.server_rng.fold("negatives").streams(6))
    s_SD = view.model.private(view.server_rng.fold("birth").streams(6), view.server_rng)[
        "user"
    ].requires_grad_()
    adam = torch.optim.Adam([s_SD], lr=0.001)
    for _ in range(5):
        adam.zero_grad()
        z_T = (s_SD[made.items.owner] * view.public["items"][made.items.values]).sum(1)
        (F.binary_cross_entropy_with_logits(z_T, made.label, reduction="sum") / 25).backward()
        adam.step()
    torch.testing.assert_close(memory["user"], s_SD.detach())


def test_synthetic_users_at_random() -> None:  # Table 5
    """Histories may hold items that nobody has, and without a fit vectors are as new users' are."""
    view = server_view(MF(8, scale=0.5), 40, catalogue=Catalogue(40, popularity_I=torch.eye(40)[0]))
    assert Contrast(6, 5).init_state(view, None)["items"].tolist() == [[0]] * 6
    mine = Contrast(6, 5, "uniform", fit_first=False)
    memory = mine.init_state(view, None)
    assert memory["items"].shape == (6, 5)
    born_SD = view.model.private(view.server_rng.fold("birth").streams(6), view.server_rng)["user"]
    assert torch.equal(memory["user"], born_SD)
    assert not torch.equal(mine.end_round(replace(view, state=memory))["user"], born_SD)
    still = replace(mine, fit_first=True, refit_steps=0)
    assert torch.equal(
        still.end_round(replace(view, state=still.init_state(view, None)))["user"], born_SD
    )


def test_synthetic_users_are_refitted_when_a_pass_closes() -> None:
    mine, view = Contrast(users=6, history=5), server_view(MF(8, scale=0.5), 40)
    memory = mine.init_state(view, None)
    midway = replace(view, state=memory, round=replace(view.round, closes_epoch=False))
    assert mine.end_round(midway) is memory
    later = mine.end_round(replace(view, state=memory))
    assert torch.equal(later["items"], memory["items"])
    assert not torch.equal(later["user"], memory["user"])


def test_repulsion() -> None:  # Eq. 14
    """One hot item, two normal ones at cosines 0 and 1 / sqrt 2; tau = 0.5."""
    loss = repulsion(rows64([2.0, 0.0]), rows64([0.0, 1.0], [1.0, 1.0]), 0.5)
    want = -math.log(math.exp(2) / (math.exp(0) + math.exp(math.sqrt(0.5) / 0.5)))
    assert float(loss) == pytest.approx(want)


def test_regulariser_is_one_adam_over_all_passes() -> None:
    view = server_view(MF(4, scale=0.5), 12)
    mine = PopularityRegulariser(hot=3, sample=100, steps=2, lr=0.01)
    model = {"items": view.public["items"].double(), "other": torch.ones(2)}
    leaf = model["items"].clone().requires_grad_()
    adam = torch.optim.Adam([leaf], lr=0.01)
    memory: dict[str, Tensor] = {}
    for _ in range(2):
        memory, model = mine.adjust_model(replace(view, state=memory), model)
        for _ in range(2):
            adam.zero_grad()
            repulsion(leaf[9:], leaf[:9], 0.2).backward()
            adam.step()
    torch.testing.assert_close(model["items"], leaf.detach())
    assert int(memory["items/t"]) == 4
    assert model["other"].tolist() == [1, 1]
    midway = replace(view, state=memory, round=replace(view.round, closes_epoch=False))
    assert mine.adjust_model(midway, model) == (memory, model)


def test_regulariser_moves_whom_it_may() -> None:
    """A quarter of 12 items is hot, the last three; each step pushes two of the others, or all."""
    view = server_view(MF(4, scale=0.5), 12)
    items_ID = view.public["items"]
    base = PopularityRegulariser(hot_share=0.25, sample=2, steps=1, lr=0.01)

    def moved(regulariser: PopularityRegulariser) -> Tensor:
        _, model = regulariser.adjust_model(view, {"items": items_ID})
        return (model["items"] != items_ID).any(1)

    assert int(moved(base)[:9].sum()) == 2 and moved(base)[9:].all()
    assert moved(replace(base, sample=0)).all()
    assert moved(replace(base, sample=0, freeze_hot=True)).tolist() == [True] * 9 + [False] * 3


def test_bad_options() -> None:
    for bad in (dict(sample=-1), dict(hot_share=1.0)):
        with pytest.raises(CoveyError, match="hot_share"):
            PopularityRegulariser(**bad)  # type: ignore[arg-type]


def test_popularity_must_be_known() -> None:
    view = server_view(MF(4), 12, catalogue=Catalogue(12))
    with pytest.raises(CoveyError, match="popularity"):
        Contrast().init_state(view, None)
    with pytest.raises(CoveyError, match="popularity"):
        PopularityRegulariser().adjust_model(view, dict(view.public))

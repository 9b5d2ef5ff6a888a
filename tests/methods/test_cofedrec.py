"""CoFedRec: the contrast against autograd of its formula, the group by hand, and a round as the paper has it."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from covey.aggregate.combine import Mean
from covey.core import Catalogue, CoveyError, Round, Upload
from covey.methods import cofedrec
from covey.methods.cofedrec import CoClusters, ItemContrast, SupCon, nearest, similarity
from covey.models.mf import MF
from covey.models.pfedrec import LinearScore
from covey.objectives import Bce
from covey.server import Method, view
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World

CONTRAST = ItemContrast(weight=0.05)
SOLVER = Local("sgd", 0.1, 2, 16, (("score", "bias"), ("items",)), rates={"items": 0.2}, per_item=("items",))


def method_of(catalogue: Catalogue, *contrast: ItemContrast) -> Method:
    model = LinearScore(4, keep_items=True)
    grouping = CoClusters(categories=3)
    return Method(model, Bce(saturating=True), catalogue, SOLVER, contrast, grouping, Mean())


class TestCoFedRec(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue, CONTRAST)


class TestCoFedRecWithoutContrast(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue)


def published(table_CID: Tensor, category_I: Tensor, tau: float, tau0: float) -> Tensor:
    """The loss as the published code computes it, with autograd through all pairs."""
    unit = F.normalize(table_CID, dim=-1)
    s_CII = unit @ unit.mT / tau
    s_CII = s_CII - s_CII.max(-1, keepdim=True).values.detach()
    other_II = ~torch.eye(len(category_I), dtype=torch.bool)
    log_CI = ((s_CII.exp() * other_II).sum(-1) + 1e-6).log()
    same_II = ((category_I[:, None] == category_I) & other_II).to(table_CID)
    q_CI = ((s_CII - log_CI[..., None]) * same_II).sum(-1) / (same_II.sum(-1) + 1e-6)
    return -tau / tau0 * q_CI.mean(1)


@pytest.mark.parametrize(("items", "tile"), [(50, 128), (50, 7), (200, 128)])
def test_gradient_is_that_of_the_formula(items: int, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cofedrec, "TILE", tile)
    torch.manual_seed(items)
    table_CID = torch.randn(3, items, 6, dtype=torch.float64, requires_grad=True)
    category_I = torch.randint(0, 5, (items,))
    category_I[0] = 5  # a category of one item
    each_C = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    naive_C = published(table_CID, category_I, 0.1, 0.5)
    closed_C = SupCon.apply(table_CID, F.one_hot(category_I).T, 0.1, 0.5)
    torch.testing.assert_close(closed_C, naive_C, rtol=1e-12, atol=1e-12)
    naive, closed = (torch.autograd.grad((x * each_C).sum(), table_CID)[0] for x in (naive_C, closed_C))
    torch.testing.assert_close(closed, naive, rtol=1e-10, atol=1e-12)


def test_contrast_pulls_a_category_together() -> None:
    torch.manual_seed(0)
    table_CID = torch.randn(2, 12, 4)
    category_I = torch.arange(12) % 3
    same_II = category_I[:, None] == category_I

    def closeness() -> float:
        unit = F.normalize(table_CID, dim=-1)
        s_CII = unit @ unit.mT
        return float(s_CII[:, same_II].mean() - s_CII[:, ~same_II].mean())

    before = closeness()
    for _ in range(50):
        table_CID.requires_grad_()
        loss_C = SupCon.apply(table_CID, F.one_hot(category_I).T, 0.5, 0.5)
        (grad,) = torch.autograd.grad(loss_C.sum(), table_CID)
        table_CID = table_CID.detach() - grad
    assert closeness() > before + 0.5


def test_contrast_is_computed_for_the_items_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once per step, not once per phase; and not before the first categories arrive."""
    calls: list[int] = []
    apply = SupCon.apply
    monkeypatch.setattr(cofedrec.SupCon, "apply", lambda *args: calls.append(1) or apply(*args))
    world = World.of(4, 40)
    play = Play(method_of(world.catalogue, CONTRAST), world, Setting(cohort=4)).begin().go(1)
    assert not calls
    play.go(1)
    known = world.data.training.items.lengths
    lengths = known * (1 + (40 - known).clamp(max=4))  # who knows nearly everything has fewer negatives
    steps = 2 * (torch.ceil(lengths / 16).clamp(min=1)).unique()  # two epochs of a block of equal steps
    assert len(calls) == int(steps.sum())


def test_similarity_by_hand() -> None:
    east, north, west = [1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]
    table_PID = torch.tensor([[east, east, north], [east, north, east], [east, west, east], [east, east, west]])
    s_P = similarity(table_PID, 0, torch.tensor([0, 1]))
    torch.testing.assert_close(s_P, torch.tensor([2.0, 1.0, 0.0, 2.0]))


@pytest.mark.parametrize(
    ("similarities", "group"),
    [
        ([9.0, 1.0, 8.0, 0.0, 2.0], [0, 2, 4]),  # 9 8 2 1 0 against 9 6.75 4.5 2.25 0: gaps 0 1.25 2.5 1.25 0
        ([5.0, 5.0, 5.0, 0.0], [0, 1, 2]),
        ([3.0], [0]),
        ([2.0, 2.0, 2.0], [0]),  # nobody stands out: the first
    ],
)
def test_elbow_by_hand(similarities: list[float], group: list[int]) -> None:
    assert nearest(torch.tensor(similarities)).tolist() == group


def test_the_group_gets_its_mean_and_the_others_keep_their_own() -> None:
    world = World.of(12, 40)
    play = Play(method_of(world.catalogue), world, Setting(cohort=12)).begin()
    uploads: list[Tensor] = []
    ask = play.fleet.ask
    play.fleet.ask = lambda *args, **more: _noted(uploads, ask(*args, **more))  # type: ignore[method-assign]
    play.go(1)
    (own_PID,) = uploads
    torch.testing.assert_close(play.server.public["items"], own_PID.mean(0))
    ids_P = play.cohort(1).ids_C
    kept_PID = play.fleet.store.dense["items"][ids_P]
    moved_P = (kept_PID != own_PID).flatten(1).any(1)
    assert 1 < int(moved_P.sum()) < 12
    for table_ID in kept_PID[moved_P]:
        torch.testing.assert_close(table_ID, own_PID[moved_P].mean(0))


def _noted(uploads: list[Tensor], upload: object) -> object:
    uploads += [upload.model["items"].clone()] if getattr(upload, "model", {}) else []
    return upload


def test_the_group_is_the_core_clients_own() -> None:
    """Two kinds of clients that see all items differently: whoever is the core, its kind is the group."""
    world = World.of(4, 40)
    play = Play(method_of(world.catalogue), world, Setting()).begin()
    torch.manual_seed(0)
    kind_P = torch.arange(10) % 2
    kinds = torch.randn(2, 40, 4)
    table_PID = kinds[kind_P] + 0.01 * torch.randn(10, 40, 4)
    for number in range(1, 6):
        upload = Upload(torch.arange(10), torch.ones(10), model={"items": table_PID})
        seen = view(play.server, play.method, "co-clusters", Round(number, torch.arange(10)))
        drawer, (group, everyone) = play.method.grouping.groups(seen, upload)
        assert len(set(kind_P[group.rows].tolist())) == 1 and not group.public
        assert everyone.rows is None and everyone.public
        assert set(drawer["category"].tolist()) == {0, 1, 2}


def test_needs_uploaded_tables() -> None:
    world = World.of(4, 40)
    method = Method(MF(4), Bce(), world.catalogue, Local("sgd", 0.1), grouping=CoClusters(3))
    with pytest.raises(CoveyError, match="keep_items"):
        Play(method, world, Setting()).begin().go(1)

"""CoFedRec: the contrast against autograd of its formula, the group by hand, and a whole round."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from covey.aggregate.combine import Mean
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Round, Upload
from covey.core.padding import pad_steps
from covey.core.rng import Rng
from covey.engine.client.training import Trainer
from covey.engine.method import Method
from covey.engine.rounds import view
from covey.methods import cofedrec
from covey.methods.cofedrec import (
    CoClusters,
    ItemCategories,
    ItemContrast,
    TableClusters,
    _with_commonest_table,
    coordinates,
    membership,
    nearest,
    similarity,
)
from covey.methods.cofedrec_figures import explained, joined_metrics, joined_rounds, sharpness
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World

CONTRAST = ItemContrast(weight=0.05)
SOLVER = Local(
    "sgd", 0.1, 2, 16, (("score", "bias"), ("items",)), rates={"items": 0.2}, per_item=("items",)
)


def method_of(catalogue: Catalogue, *contrast: ItemContrast) -> Method:
    model = LinearScore(4, keep_items=True)
    grouping = CoClusters(categories=3)
    return Method(model, Bce(saturating=True), catalogue, SOLVER, contrast, grouping, Mean())


class TestCoFedRec(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue, CONTRAST)


class TestCoFedRecWithoutContrast(Conformance):
    """A contrast without weight is none."""

    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue, ItemContrast(weight=0.0))

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        return self.method(catalogue), method_of(catalogue)


class TestCoFedRecSampled(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue, ItemContrast(weight=0.05, sample=8))


class TestCoFedRecAsPrinted(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue, ItemContrast(weight=0.001, tau=0.5, reading="printed"))


class TestCoFedRecOnMF(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        solver = Local("sgd", 0.1, 2, 16, (("user",), ("items",)))
        model = MF(4, scale=0.5, keep_items=True)
        return Method(model, Bce(), catalogue, solver, (CONTRAST,), CoClusters(3), Mean())


class TestCoFedRecOnNCF(Conformance):
    """The MLP is averaged over everybody."""

    def method(self, catalogue: Catalogue) -> Method:
        model = NCF(4, (4, 3), 0.5, keep_items=True)
        return Method(
            model, Bce(), catalogue, Local("adam", 0.01, 2, 16), (CONTRAST,), CoClusters(3), Mean()
        )


class TestClientsClusteredByTables(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        model = LinearScore(4, keep_items=True)
        return Method(model, Bce(saturating=True), catalogue, SOLVER, (), TableClusters(2), Mean())


class TestPFedRecWithContrast(Conformance):
    """Table 2's Item_SC: everybody shares one table, and the contrast has its categories."""

    def method(self, catalogue: Catalogue) -> Method:
        parts = (ItemCategories(3), ItemContrast(weight=0.05, listens="item categories"))
        return Method(
            LinearScore(4), Bce(saturating=True), catalogue, SOLVER, parts, combine=Mean()
        )


def test_contrast_is_computed_for_the_items_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once per step and not per phase, after the first categories; the common start is shared."""
    calls: list[int] = []
    real = cofedrec.published
    monkeypatch.setattr(
        cofedrec, "published", lambda table, *more: calls.append(len(table)) or real(table, *more)
    )
    world = World.of(4, 40)
    play = Play(method_of(world.catalogue, CONTRAST), world, Setting(cohort=4)).begin().go(1)
    assert not calls
    group = int(play.server.state["co-clusters"]["tell/group"])
    play.go(1)
    known = world.data.training.items.lengths
    lengths = known * (
        1 + (40 - known).clamp(max=4)
    )  # who knows nearly everything has fewer negatives
    steps = (
        2 * (torch.ceil(lengths / 16).clamp(min=1)).unique()
    )  # two epochs of a block of equal steps
    shared = group > 1
    assert (
        len(calls) <= int(steps.sum()) + shared
    )  # a block in which all start alike has nothing to do at first
    assert len(calls) >= int(steps.sum()) - len(steps) + shared


def test_similarity_by_hand() -> None:
    east, north, west = [1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]
    table_PID = torch.tensor(
        [[east, east, north], [east, north, east], [east, west, east], [east, east, west]]
    )
    s_P = similarity(table_PID, 0, torch.tensor([0, 1]))
    torch.testing.assert_close(s_P, torch.tensor([2.0, 1.0, 0.0, 2.0]))


@pytest.mark.parametrize(
    ("similarities", "group"),
    [
        (
            [9.0, 1.0, 8.0, 0.0, 2.0],
            [0, 2, 4],
        ),  # 9 8 2 1 0 against 9 6.75 4.5 2.25 0: gaps 0 1.25 2.5 1.25 0
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
    kept_PID = play.fleet.store.take(ids_P)["items"]
    moved_P = (kept_PID != own_PID).flatten(1).any(1)
    assert 1 < int(moved_P.sum()) < 12
    for table_ID in kept_PID[moved_P]:
        torch.testing.assert_close(table_ID, own_PID[moved_P].mean(0))


def _noted(uploads: list[Tensor], upload: object) -> object:
    uploads += [upload.model["items"].clone()] if getattr(upload, "model", {}) else []
    return upload


def test_the_group_is_the_core_clients_own() -> None:
    """Two kinds of clients that see all items differently: the group is the core client's kind."""
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


def test_the_shared_start_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.of(14, 40)
    outcomes = []
    for alike in (_with_commonest_table, lambda table_CID, many: None):
        monkeypatch.setattr(cofedrec, "_with_commonest_table", alike)
        play = Play(method_of(world.catalogue, CONTRAST), world, Setting(cohort=14)).begin().go(4)
        outcomes.append(play.fleet.store.dense["items"].clone())
    assert torch.equal(*outcomes)


def test_who_starts_alike() -> None:
    one, two, three = torch.randn(3, 5, 2)
    table_CID = torch.stack([one, two, two, three, two])
    found = _with_commonest_table(table_CID, 5)
    assert found is not None and found.tolist() == [False, True, True, False, True]
    assert _with_commonest_table(table_CID[[0, 1, 3]], 3) is None
    found = _with_commonest_table(one[None], 3)  # one table that all were sent
    assert found is not None and found.tolist() == [True, True, True]
    twin = torch.stack([one, one[[1, 0, 2, 3, 4]]])  # the same sum, another table
    found = _with_commonest_table(twin, 2)
    assert found is None or found.tolist() == [True, False]


def test_categories_are_never_empty() -> None:
    dice = Rng.server(0, 1, "dice")
    far = torch.tensor([[0.0, 0.0], [0.1, 0.0], [9.0, 9.0], [9.1, 9.0]])
    assert sorted(membership(far, 2, dice).bincount().tolist()) == [2, 2]
    assert membership(far, 30, dice).unique().tolist() == [0, 1, 2, 3]  # more categories than items
    same = torch.ones(6, 2)
    assert membership(same, 3, dice).tolist() == [0] * 6  # fewer distinct items than categories


def test_a_single_participant_is_its_own_group() -> None:
    world = World.of(4, 40)
    play = Play(method_of(world.catalogue, CONTRAST), world, Setting(cohort=1)).begin().go(3)
    told = play.server.state["co-clusters"]
    assert int(told["tell/group"]) == int(told["tell/participants"]) == 1


def test_who_vanishes_before_the_delivery_keeps_its_own_table() -> None:
    """The group's mean counts them: they had uploaded."""
    world = World.of(12, 40)
    tables = []
    for lost in (
        None,
        lambda step, round, ids_C: torch.full_like(ids_C, step == "deliver" and round == 1).bool(),
    ):
        setting = Setting(cohort=12) if lost is None else Setting(cohort=12, lost=lost)
        play = Play(method_of(world.catalogue), world, setting).begin().go(1)
        tables.append(play.fleet.store.take(torch.arange(12))["items"])
        public = play.server.public["items"]
    delivered, kept = tables
    moved_N = (delivered != kept).flatten(1).any(1)
    assert 1 < int(moved_N.sum()) < 12
    torch.testing.assert_close(kept.mean(0), public)  # all still have what they uploaded


def test_how_often_clients_were_of_the_group() -> None:
    joined_N = joined_rounds(None, torch.tensor([0, 2, 3]), torch.tensor([2]))
    assert joined_N.tolist() == [0, -1, 1, 0]
    joined_N = joined_rounds(joined_N, torch.tensor([2, 5]), torch.tensor([2, 5]))
    assert joined_N.tolist() == [0, -1, 2, 0, -1, 1]
    metrics = joined_metrics(joined_N, 1)
    assert float(metrics["often"]) == 0.5  # two of the four that ever took part
    assert int(metrics["least"]) == 0


def test_what_figures_3_and_6_show_as_numbers() -> None:
    straight, step = torch.arange(11.0), torch.cat([torch.ones(5), torch.zeros(6)])
    assert float(sharpness(straight)) == pytest.approx(0, abs=1e-6)
    assert 0.4 < float(sharpness(step)) <= 1 and int(sharpness(torch.ones(1))) == 0
    far = torch.tensor([[0.0, 0.0], [0.0, 2.0], [9.0, 0.0], [9.0, 2.0]])
    between, within = 4 * 4.5**2, 4 * 1.0
    assert float(explained(far, torch.tensor([0, 0, 1, 1]))) == pytest.approx(
        between / (between + within)
    )
    assert float(explained(far, torch.zeros(4, dtype=torch.long))) == pytest.approx(0)


def test_few_coordinates_keep_the_distances() -> None:
    x_PX = torch.randn(7, 300, dtype=torch.float64)
    torch.testing.assert_close(
        torch.cdist(coordinates(x_PX), coordinates(x_PX)), torch.cdist(x_PX, x_PX)
    )


def test_clients_are_clustered_by_their_whole_tables() -> None:
    world = World.of(6, 40)
    method = Method(
        LinearScore(4, keep_items=True),
        Bce(),
        world.catalogue,
        SOLVER,
        (),
        TableClusters(2),
        Mean(),
    )
    play = Play(method, world, Setting()).begin()
    table_PID = torch.zeros(6, 40, 4)
    table_PID[4:] = 5.0
    upload = Upload(torch.arange(6), torch.ones(6), model={"items": table_PID})
    drawer, groups = method.grouping.groups(
        view(play.server, method, "table clusters", Round(1, torch.arange(6))), upload
    )
    assert sorted(g.rows.tolist() for g in groups[:-1] if g.rows is not None) == [
        [0, 1, 2, 3],
        [4, 5],
    ]
    assert float(drawer["tell/largest"]) == pytest.approx(4 / 6) and int(drawer["tell/alone"]) == 0
    assert groups[-1].public and groups[-1].rows is None
    shared = Play(
        Method(MF(4), Bce(), world.catalogue, Local("sgd"), grouping=TableClusters(2)),
        world,
        Setting(),
    )
    with pytest.raises(CoveyError, match="keep_items"):
        shared.begin().go(1)
    with pytest.raises(CoveyError):
        TableClusters(0)


def test_only_the_categories_are_sent() -> None:
    world = World.of(8, 40)
    play = Play(method_of(world.catalogue), world, Setting(cohort=8)).begin().go(1)
    sent = play.method.grouping.send(
        view(play.server, play.method, "co-clusters", Round(2, torch.arange(8)))
    )
    assert set(sent.shared) == {"category"} and not sent.each


@pytest.mark.parametrize(
    "options", [{"weight": -1.0}, {"sample": -1}, {"tau": 0.0}, {"sample": 8, "reading": "printed"}]
)
def test_impossible_options(options: dict[str, float]) -> None:
    with pytest.raises(CoveyError):
        ItemContrast(**options)
    with pytest.raises(CoveyError):
        CoClusters(0)


def test_idle_steps_move_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU clients of unlike lengths share a block, and the shorter ones idle at the end."""
    world, usual = World.of(25, 200), Trainer.costs
    outcomes = []
    for coarse in (False, True):
        monkeypatch.setattr(
            Trainer, "costs", lambda self, work, c=coarse: replace(usual(self, work), coarse=c)
        )
        play = Play(method_of(world.catalogue, CONTRAST), world, Setting(cohort=25)).begin().go(3)
        outcomes.append(play.fleet.store.dense["items"].clone())
    assert torch.equal(*outcomes)
    lengths = 5 * world.data.training.items.lengths
    exact_C = torch.ceil(lengths[2:] / SOLVER.batch).long()
    assert len(pad_steps(exact_C).unique()) < len(exact_C.unique())
    assert bool((pad_steps(exact_C) >= exact_C).all())

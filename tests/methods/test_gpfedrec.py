"""GPFedRec: the graph by hand, the mean by degrees, the pull, and the suite."""

import pytest
import torch
from torch import Tensor

from covey.aggregate.combine import Mean
from covey.contract.views import ServerView
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Round, Upload
from covey.core.ragged import Ragged, Rows
from covey.engine.method import Method
from covey.methods.gpfedrec import GraphPull, UserGraph, latest
from covey.models.ncf import NCF
from covey.objectives.pairs import Bce
from covey.run.config.shipped import read
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World

MODEL = NCF(4, (4, 3), 1.0, keep_mlp=True, tuned=("items",))
SOLVER = Local("sgd", 0.1, 1, 16, rates={"items": 0.2, "user": 0.3}, per_item=("items",))
EAST, NORTH, WEST = [1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]


def method_of(catalogue: Catalogue, *pull: GraphPull, graph: UserGraph | None = None) -> Method:
    grouping = graph or UserGraph()
    return Method(MODEL, Bce(saturating=True), catalogue, SOLVER, pull, grouping, Mean())


class TestGPFedRec(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue, GraphPull(0.5))


class TestGPFedRecWithoutPull(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_of(
            catalogue, GraphPull(0.0), graph=UserGraph("similar", neighbours=3, layers=2)
        )

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        graph = UserGraph("similar", neighbours=3, layers=2)
        return self.method(catalogue), method_of(catalogue, graph=graph)


def test_the_published_graph_links_the_dissimilar() -> None:
    """Distances: east-north 1, east-west 2, north-west 1, mean over all nine pairs 8 / 9."""
    a_PP = UserGraph().graph(torch.tensor([EAST, NORTH, WEST]))
    half = 1 / 2
    torch.testing.assert_close(
        a_PP, torch.tensor([[0, half, half], [half, 0, half], [half, half, 0]])
    )
    a_PP = UserGraph(threshold=1.5).graph(
        torch.tensor([EAST, NORTH, WEST])
    )  # over 4 / 3: north is alone
    torch.testing.assert_close(a_PP, torch.tensor([[0.0, 0, 1], [0, 1, 0], [1, 0, 0]]))


def test_the_printed_graph_links_the_similar() -> None:
    """Cosines: twice east 1, north 0 to both; mean 5 / 9."""
    a_PP = UserGraph("similar").graph(torch.tensor([EAST, [5.0, 0.0], NORTH]))
    torch.testing.assert_close(a_PP, torch.tensor([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]))


def test_the_shipped_forms_differ_in_their_links() -> None:
    published, printed = (read("methods", name) for name in ("gpfedrec", "gpfedrec-printed"))
    assert (published["grouping"].pop("links"), printed["grouping"].pop("links")) == (
        "dissimilar",
        "similar",
    )
    assert published.pop("title") != printed.pop("title") and published == printed


def test_so_many_neighbours() -> None:
    a_PP = UserGraph("similar", neighbours=1).graph(torch.tensor([EAST, NORTH, WEST]))
    torch.testing.assert_close(a_PP, torch.eye(3))  # everybody is its own nearest
    a_PP = UserGraph("dissimilar", neighbours=9).graph(torch.tensor([EAST, NORTH]))
    torch.testing.assert_close(a_PP, torch.full((2, 2), 0.5))


def seen(public_ID: Tensor, ids: list[int], memory: dict[str, Tensor]) -> ServerView:
    return ServerView(
        {"items": public_ID},
        memory,
        Round(2, torch.tensor(ids)),
        0,
        "x",
        MODEL,
        Bce(),
        Catalogue(1),
    )


def test_the_public_table_is_the_mean_of_the_neighbours() -> None:
    """Three tables of one item each; threshold 1.5 links east and west, and north to itself."""
    rows = Rows(
        Ragged(torch.zeros(3, dtype=torch.long), torch.arange(4)),
        torch.tensor([EAST, NORTH, WEST]),
        1,
    )
    upload = Upload(torch.tensor([7, 3, 5]), torch.ones(3), {"items": rows})
    view = seen(torch.zeros(1, 2), [7, 3, 5], {})
    drawer, (everyone,) = UserGraph(threshold=1.5).groups(view, upload)
    assert drawer["ids"].tolist() == [3, 5, 7]
    assert drawer["table"].tolist() == [[NORTH], [EAST], [WEST]]  # 5 was west and gets east's
    update, _ = Mean().combine(Upload(upload.ids_C, everyone.weight, upload.update), ["items"])
    torch.testing.assert_close(update["items"], drawer["table"].mean(0))
    own = UserGraph().send(seen(torch.full((1, 2), 9.0), [5, 4], drawer)).each["table"]
    assert own.tolist() == [[EAST], [[9.0, 9.0]]]  # who never took part gets the public one


def test_tables_of_those_who_were_away_are_kept() -> None:
    old = {"ids": torch.tensor([1, 4]), "table": torch.tensor([[[1.0]], [[4.0]]])}
    new = latest(old, torch.tensor([9, 4, 2]), torch.tensor([[[9.0]], [[40.0]], [[2.0]]]))
    assert new["ids"].tolist() == [1, 2, 4, 9] and new["table"].flatten().tolist() == [1, 2, 40, 9]


def test_the_pull_moves_the_rows_that_no_example_names() -> None:
    """In the first round g = r and nothing is pulled; then every row is, to the neighbours'."""
    world = World.of(6, 80)
    play = Play(method_of(world.catalogue, GraphPull(1.0)), world, Setting(cohort=6)).begin()
    moved = []
    for _ in range(2):
        play.go(1)
        tuned_CID = play.fleet.store.rows["tuned/items"].take(torch.arange(6)).dense()
        moved.append((tuned_CID != 0).any(-1))
    assert not bool(moved[0][0].any()) and not bool(
        moved[1][0].any()
    )  # client 0 has no item and takes no step
    assert 0 < int(moved[0][3].sum()) < 80 and int(moved[1][3].sum()) == 80


def test_impossible_options() -> None:
    with pytest.raises(CoveyError):
        GraphPull(-1.0)
    with pytest.raises(CoveyError):
        UserGraph(layers=0)
    with pytest.raises(CoveyError):
        UserGraph(neighbours=-1)

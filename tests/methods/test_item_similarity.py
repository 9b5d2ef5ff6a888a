"""Item similarity: Eq. 10 by hand and item by item, and the suite."""

import pytest
import torch
import torch.nn.functional as F

from covey.aggregate.combine import Mean
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue
from covey.engine.method import Method
from covey.methods.cofedrec import CoClusters, ItemCategories
from covey.methods.item_similarity import ItemSimilarity, similar
from covey.methods.supcon import members
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance

SOLVER = Local(
    "sgd", 0.1, 1, 16, (("score", "bias"), ("items",)), rates={"items": 0.2}, per_item=("items",)
)


def method_of(catalogue: Catalogue, *more: ItemSimilarity) -> Method:
    return Method(
        LinearScore(4), Bce(), catalogue, SOLVER, (ItemCategories(3), *more), combine=Mean()
    )


class TestItemSimilarity(Conformance):
    """Table 2's Item_S."""

    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue, ItemSimilarity(0.1))

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        return method_of(catalogue, ItemSimilarity(0.0)), method_of(catalogue)


class TestItemSimilarityInGroups(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        parts = (ItemSimilarity(0.1, listens="co-clusters"),)
        return Method(
            LinearScore(4, keep_items=True), Bce(), catalogue, SOLVER, parts, CoClusters(3), Mean()
        )


def test_by_hand() -> None:
    """Items 0, 1, 2 (east, north, north-east) are a category, 3 is alone; the client has 0, 3."""
    table_CID = torch.tensor(
        [[[2.0, 0.0], [0.0, 5.0], [3.0, 3.0], [0.0, 1.0]]], dtype=torch.float64
    )
    mine_CI = torch.tensor([[0.5, 0, 0, 0.5]], dtype=torch.float64)
    loss_C = similar(table_CID, members(torch.tensor([0, 0, 0, 1])), mine_CI)
    assert float(loss_C) == pytest.approx(-0.5 * (0 + 2**-0.5) / 2)


def test_item_by_item() -> None:
    torch.manual_seed(0)
    table_CID, category_I = torch.randn(2, 20, 4, dtype=torch.float64), torch.arange(20) % 4
    known = [[0, 5, 9], [2, 3]]
    mine_CI = torch.zeros(2, 20, dtype=torch.float64)
    for c, items in enumerate(known):
        mine_CI[c, items] = 1 / len(items)
    for c, loss in enumerate(similar(table_CID, members(category_I), mine_CI)):
        total = 0.0
        for i in known[c]:
            others = [z for z in range(20) if z != i and category_I[z] == category_I[i]]
            total -= float(
                F.cosine_similarity(table_CID[c, i], table_CID[c, others], dim=-1).mean()
            )
        assert float(loss) == pytest.approx(total / len(known[c]))


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(CoveyError, match="weight"):
        ItemSimilarity(-1.0)

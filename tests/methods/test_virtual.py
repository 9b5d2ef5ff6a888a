"""Virtual ratings: as many as asked for, of unknown items, with fair coins; and the suite."""

import pytest
import torch

from covey.aggregate.combine import Mean
from covey.contract.examples import Examples
from covey.contract.views import ClientView, TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Sent
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.method import Method
from covey.methods.virtual import VirtualRatings
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance

SOLVER = Local(
    "sgd", 0.1, 1, 16, (("score", "bias"), ("items",)), rates={"items": 0.2}, per_item=("items",)
)


def method_of(catalogue: Catalogue, *virtual: VirtualRatings) -> Method:
    return Method(LinearScore(4), Bce(saturating=True), catalogue, SOLVER, virtual, combine=Mean())


class TestVirtualRatings(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue, VirtualRatings(0.4))

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        return method_of(catalogue, VirtualRatings(0.0)), method_of(catalogue)


def augmented(
    lists: list[list[int]], n_items: int, share: float, seed: int = 0
) -> tuple[Examples, Examples]:
    items = Ragged.of(lists)
    ids_C = torch.arange(len(lists))
    data = TrainingData(items, Ragged.of([sorted(one) for one in lists]))
    rng = Rng.of(seed, 1, ids_C)
    view = ClientView({}, data, Sent(), rng, LinearScore(2), Bce(), Catalogue(n_items))
    before = Bce(negatives=1).examples(items, data.avoid, n_items, rng)
    return before, VirtualRatings(share).augment(view, before)


def test_as_many_as_asked_for() -> None:
    lists = [list(range(10)), [3, 4, 5], [], list(range(20))]  # the last one knows every item
    before, after = augmented(lists, 20, 0.5)
    assert (after.items.lengths - before.items.lengths).tolist() == [5, 2, 0, 0]
    made = after.items.take(torch.tensor([0])).values[20:]
    assert len(made) == 5 and bool((made >= 10).all())  # items that it does not know
    assert bool((after.weight[after.items.owner == 0][20:] == 1).all())


def test_ratings_are_fair_coins() -> None:
    lists = [list(range(50))] * 200
    before, after = augmented(lists, 100, 1.0)
    first = after.items.place >= before.items.lengths[0]
    assert 0.48 < float(after.label[first].mean()) < 0.52
    assert set(after.label[first].tolist()) == {0.0, 1.0}
    again = augmented(lists, 100, 1.0)[1]
    assert torch.equal(after.label, again.label) and torch.equal(
        after.items.values, again.items.values
    )


def test_a_negative_share_is_refused() -> None:
    with pytest.raises(CoveyError, match="share"):
        VirtualRatings(-0.1)

"""UNION's task: its loss by hand, what is drawn, and the suite that every method inherits."""

import math
from dataclasses import replace

import pytest
import torch

from covey.contract.examples import Batch
from covey.contract.views import ClientView, TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Sent
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.client.blocks import Engine
from covey.engine.client.training import Trainer
from covey.engine.method import Method
from covey.methods.union_task import UnionTask, task
from covey.models.ncf import NCF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance

F64 = torch.float64


class TestUnionTask(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        part = UnionTask(negatives=3)
        return Method(
            NCF(4, (4, 3), scale=0.1), Bce(), catalogue, Local("adam", 0.01, epochs=2), (part,)
        )

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        full = self.method(catalogue)
        return replace(full, mechanisms=(UnionTask(0.0, negatives=3),)), replace(
            full, mechanisms=()
        )


def view_of(lists: list[list[int]], n_items: int = 20) -> ClientView:
    mine = Ragged.of(lists)
    rng = Rng.of(0, 1, torch.arange(len(lists)))
    return ClientView(
        {}, TrainingData(mine, mine), Sent(), rng, NCF(2, (2,)), Bce(), Catalogue(n_items)
    )


def test_by_hand() -> None:
    """One anchor (1, 2): the partner scores 3, a negative 1; the other does not exist."""
    v = torch.tensor([[[[1.0, 2.0], [1.0, 1.0], [-1.0, 1.0], [9.0, 9.0]]] * 2], dtype=F64)
    exists, anchors = torch.tensor([[[True, False]] * 2]), torch.tensor([[True, False]])
    want = -math.log(math.exp(3) / (math.exp(3) + math.exp(1)))
    assert task(v, exists, anchors).tolist() == pytest.approx([want])
    assert task(v, exists, ~anchors & anchors).tolist() == [0]


def test_partners_are_others_and_negatives_are_foreign() -> None:
    lists = [[1, 4, 6], [3], [0, 2], []]
    partner_T, drawn_TK, exists_TK = UnionTask()._draw(view_of(lists))
    owner = [0, 0, 0, 1, 2, 2]
    flat = [item for one in lists for item in one]
    for t, c in enumerate(owner):
        assert int(partner_T[t]) in lists[c]
        assert len(lists[c]) == 1 or int(partner_T[t]) != flat[t]
        row = drawn_TK[t].tolist()
        assert len(set(row)) == 15 and not set(row) & set(lists[c]) and exists_TK[t].all()


def test_all_partners_are_equally_likely() -> None:
    partner_T, _, _ = UnionTask()._draw(view_of([[1, 4, 6, 9]] * 2000))
    counts = torch.bincount(partner_T.view(2000, 4)[:, 0], minlength=10)[[1, 4, 6, 9]].tolist()
    assert counts[0] == 0
    assert [c / 2000 for c in counts[1:]] == pytest.approx([1 / 3] * 3, abs=0.04)


def test_negatives_are_rows_without_weight() -> None:
    """A user with one item has no partner, and so no further rows."""
    view = view_of([[1, 4], [3]])
    plain = Bce().examples(view.data.items, view.data.avoid, 20, view.rng.fold("examples"))
    more = UnionTask(negatives=5).augment(view, plain)
    assert more.items.lengths.tolist() == [10 + 2 * 5, 5]
    assert float(more.weight.sum()) == float(plain.weight.sum())
    assert UnionTask(0.0).augment(view, plain) is plain


def test_rows_of_the_task_make_no_steps() -> None:
    """Adam would move in a step without examples; 15 and 5 of them are always 4 and 2 steps."""
    view = view_of([[1, 4, 6], [3]])
    for weight in (0.0, 1.0):
        trainer = Trainer(Local("adam", batch=4), (UnionTask(weight),), Engine())
        work = trainer.work(view, {})
        steps = {int(block.pick[0]): block.steps for block in trainer.blocks(work)}
        assert steps == {0: 4, 1: 2}


def test_rows_are_found_where_the_client_has_them() -> None:
    """Rows 1, 4, 6 and 7 of 9; a row's vector is its item's number, so scores are products."""
    view = view_of([[1, 4], [6]], n_items=9)
    ids = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8], [2, 6, 7, 0, 0, 0, 0, 0, 0]])
    real = torch.tensor([[True] * 9, [True] * 3 + [False] * 6])
    empty = torch.zeros(2, 9)
    view = replace(view, batch=Batch(ids, real, None, empty, empty))
    mine = UnionTask(2.0, negatives=3)
    ready = mine.prepare(view)
    _, drawn_TK, _ = mine._draw(view)
    loss_C = mine.loss(replace(view, params={"items": ids[..., None].double() / 9}, prepared=ready))
    want = 0.0
    for anchor, partner, row in ((1, 4, drawn_TK[0]), (4, 1, drawn_TK[1])):
        score = torch.tensor([anchor * partner, *(anchor * int(j) for j in row)], dtype=F64) / 81
        want -= float(score.log_softmax(0)[0])
    assert loss_C is not None
    assert loss_C.tolist() == pytest.approx([2 * want / 2, 0])


def test_bad_options() -> None:
    with pytest.raises(CoveyError, match="negative"):
        UnionTask(-1.0)
    with pytest.raises(CoveyError, match="negatives"):
        UnionTask(negatives=0)

"""Sums and means of uploads, worked by hand."""

import pytest
import torch

from covey.aggregate.combine import ItemMean, Mean, Sum
from covey.aggregate.fold import Fold, total_of
from covey.contract.aggregation import Combine
from covey.core.fixed_point import Scales
from covey.core.messages import Total, Upload
from covey.core.ragged import Ragged, Rows
from covey.testing.compare import expect_same

NAMES = ("items", "bias")


def upload(weight: list[float] | None = None) -> Upload:
    """Client 4 moves rows 0 and 2, client 7 row 2, client 9 nothing."""
    rows = Rows(
        Ragged.of([[0, 2], [2], []]), torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]]), 4
    )
    return Upload(
        torch.tensor([4, 7, 9]),
        torch.tensor(weight or [1.0, 1.0, 1.0]),
        {"items": rows, "bias": torch.tensor([[3.0], [6.0], [9.0]])},
        {"score": torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])},
        {"m": {"count": torch.tensor([1, 2, 3])}},
    )


def test_total() -> None:
    total = total_of(upload())
    assert total.ids_C.tolist() == [4, 7, 9] and float(total.weight) == 3
    assert total.update["items"].tolist() == [[1, 10], [0, 0], [6, 60], [0, 0]]
    assert total.update["bias"].tolist() == [18]
    assert total.touched["items"].tolist() == [1, 0, 2, 0]
    assert set(total.touched) == {"items"}
    assert total.model["score"].tolist() == [9, 12]
    assert int(total.extra["m"]["count"]) == 6


def test_weighted_total() -> None:
    total = total_of(upload([2.0, 1.0, 0.5]))
    assert float(total.weight) == 3.5
    assert total.update["items"].tolist() == [[2, 20], [0, 0], [8, 80], [0, 0]]
    assert total.touched["items"].tolist() == [2, 0, 3, 0]
    assert total.update["bias"].tolist() == [6 + 6 + 4.5]
    assert total.model["score"].tolist() == [2 + 3 + 2.5, 4 + 4 + 3]
    assert int(total.extra["m"]["count"]) == 6  # what mechanisms report is not weighted


def test_sum() -> None:
    update, model = Sum().combine(upload(), (*NAMES, "score"))
    assert update["items"].tolist() == [[1, 10], [0, 0], [6, 60], [0, 0]] and update[
        "bias"
    ].tolist() == [18]
    assert model["score"].tolist() == [3, 4]


def test_mean() -> None:
    update, model = Mean().combine(upload(), NAMES)
    assert update["items"][2].tolist() == [2, 20] and update["bias"].tolist() == [6]
    assert not model  # not asked for
    weighted, _ = Mean().combine(upload([2.0, 1.0, 1.0]), NAMES)
    assert weighted["items"][2].tolist() == [2, 20] and weighted["bias"].tolist() == [
        (6 + 6 + 9) / 4
    ]


def test_item_mean() -> None:
    update, _ = ItemMean().combine(upload(), NAMES)
    assert update["items"].tolist() == [[1, 10], [0, 0], [3, 30], [0, 0]] and update[
        "bias"
    ].tolist() == [6]
    weighted, _ = ItemMean().combine(upload([3.0, 1.0, 1.0]), NAMES)
    assert weighted["items"].tolist() == [[1, 10], [0, 0], [(6 + 4) / 4, (60 + 40) / 4], [0, 0]]


@pytest.mark.parametrize("combine", [Sum(), Mean(), ItemMean()])
@pytest.mark.parametrize("weight", [[1.0, 1.0, 1.0], [2.0, 1.0, 0.5]])
def test_of_a_total_as_of_its_uploads(combine: Combine, weight: list[float]) -> None:
    whole, names = upload(weight), (*NAMES, "score")
    expect_same(combine.combine(whole, names), combine.combine(total_of(whole), names))


def test_part_by_part_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    ids = torch.arange(40)
    lists = [[i for i in range(30) if (i * c) % 7 < 3] for c in range(40)]
    flat = sum(map(len, lists))
    whole = Upload(
        ids,
        torch.rand(40),
        {"items": Rows(Ragged.of(lists), torch.randn(flat, 3), 30), "b": torch.randn(40, 5)},
    )
    for size in (1, 7, 16, 40):
        fold = Fold(Scales(40))
        for pick in ids.split(size):
            fold.add(whole.take(pick))
        expect_same(total_of(whole, scales=Scales(40)), fold.total())


def test_parts_summed_elsewhere_are_joined() -> None:
    fold = Fold(Scales(3))
    for ids, x in (([1, 2], 3.0), ([5], 4.0)):
        update, touched = {"items": torch.full((2, 1), x)}, {"items": torch.ones(2)}
        weight = torch.tensor(float(len(ids)))
        fold.add_total(Total(torch.tensor(ids), weight, update, touched=touched))
    total = fold.total()
    assert total.ids_C.tolist() == [1, 2, 5] and float(total.weight) == 3
    assert total.update["items"].tolist() == [[7], [7]]
    assert total.touched["items"].tolist() == [2, 2]


def test_an_empty_fold() -> None:
    total = Fold(Scales(0)).total()
    assert len(total) == 0 and float(total.weight) == 0 and not total.update


def test_lists_have_no_sum() -> None:
    lists = Upload(torch.tensor([1]), torch.ones(1), extra={"m": {"list": Ragged.of([[1, 2]])}})
    with pytest.raises(ValueError, match="no sum"):
        total_of(lists)


def test_the_uploads_are_left_as_they_were() -> None:
    first = upload([2.0, 1.0, 0.5])
    for combine in (Sum(), Mean(), ItemMean()):
        combine.combine(first, (*NAMES, "score"))
    expect_same(first, upload([2.0, 1.0, 0.5]))

"""Integer sums: the unit on numbers worked by hand, and the same bits for every partition."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.aggregate.fold import Fold, total_of
from covey.core.errors import CoveyError
from covey.core.fixed_point import Scales, decode, encode, fraction_of
from covey.core.messages import Upload
from covey.core.ragged import Ragged, Rows
from covey.testing.compare import expect_same

N, ITEMS = 24, 10
SCALES = Scales(N, {"update/items": 4096.0, "update/b": 4096.0, "weight": 8.0})


def an_upload(seed: int) -> Upload:
    rng = torch.Generator().manual_seed(seed)
    lists = [torch.randperm(ITEMS, generator=rng)[: c % 5].tolist() for c in range(N)]
    flat = sum(map(len, lists))

    def normal(*shape: int) -> torch.Tensor:
        wide = torch.randn(*shape, generator=rng)
        return wide * 10.0 ** torch.randint(-6, 3, shape, generator=rng)

    return Upload(
        torch.arange(N),
        torch.rand(N, generator=rng) * 8,
        {"items": Rows(Ragged.of(lists), normal(flat, 3), ITEMS), "b": normal(N, 4)},
        {"w": normal(N, 2, 2)},
        {"m": {"counts": torch.randint(0, 9, (N, 3), generator=rng), "x": normal(N, 2).double()}},
    )


def folded(upload: Upload, parts: list[list[int]]) -> Any:
    folds = []
    for part in parts:
        fold = Fold(SCALES)
        for chunk in torch.tensor(part, dtype=torch.int64).split(3):
            fold.add(upload.take(chunk))
        folds.append(fold)
    first, *rest = folds
    for fold in rest:
        first.merge(fold)
    return first.total()


@given(st.permutations(range(N)), st.lists(st.integers(0, N), max_size=5), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_every_partition_has_the_same_bits(order: list[int], cuts: list[int], seed: int) -> None:
    """Clients in any order, divided among up to six workers, some of which may have none."""
    upload, edges = an_upload(seed), [0, *sorted(cuts), N]
    parts = [order[a:b] for a, b in pairwise(edges)]
    one, many = folded(upload, [list(range(N))]), folded(upload, parts)
    for name in ("weight", "update", "model", "touched", "extra"):
        expect_same(getattr(one, name), getattr(many, name), why=name)
    assert sorted(many.ids_C.tolist()) == list(range(N))


def test_the_unit_on_numbers_worked_by_hand() -> None:
    assert fraction_of(4096.0, 1000) == 62 - 22  # 4,096,000 is below 2^22
    assert encode(torch.tensor([0.75, -1.3, 2.6]), 0).tolist() == [1, -1, 3]
    assert encode(torch.tensor([0.3]), 10).tolist() == [307]  # 307.2
    assert decode(torch.tensor([307]), 10, torch.float64).tolist() == [307 / 1024]
    wide = torch.tensor([0.5], dtype=torch.float64)
    encode(wide, 3)
    assert wide.tolist() == [0.5]  # left as it was


def test_a_sum_is_as_exact_as_its_unit() -> None:
    upload = an_upload(1)
    total = total_of(upload, scales=SCALES)
    weight = upload.weight_C.double()
    plain = (upload.update["b"].double() * weight[:, None]).sum(0)
    fraction = SCALES.fraction("update/b")
    # Half a unit for each client, and the product and the result in single precision.
    slack = N * 2.0 ** -(fraction + 1) + 2e-6 * plain.abs().max()
    assert float((total.update["b"].double() - plain).abs().max()) <= slack
    counts = upload.extra["m"]["counts"].sum(0)
    assert torch.equal(total.extra["m"]["counts"], counts)  # whole numbers are exact


def test_too_few_bits_are_refused() -> None:
    Scales(1_000_000, {"update/items": 4096.0, "weight": 65536.0}).check()
    with pytest.raises(CoveyError, match=r"12 are needed; declare a smaller Disclosure.largest"):
        Scales(1_000_000, {"m/x": 2.0**40}).check()


def test_numbers_that_are_not_finite_are_not_hidden() -> None:
    upload = an_upload(2)
    upload.update["b"][3, 1] = float("nan")
    total = total_of(upload)
    assert bool(total.update["b"].isnan().all()) and bool(total.update["items"].isfinite().all())

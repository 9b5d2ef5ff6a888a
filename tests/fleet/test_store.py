"""The private state of simulated clients against a plain dictionary, and through a checkpoint."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from covey.core.ragged import FieldDict, Ragged, Rows
from covey.engine.fleet.meter import Meter
from covey.engine.fleet.store import Store
from covey.testing.compare import expect_same

N, ITEMS = 6, 9


def drawer(ids: list[int], version: int) -> FieldDict:
    """What clients keep after some training, different by client and version."""
    lists = [list(range(c % 3 + version % 2, ITEMS, 4)) if (c + version) % 5 else [] for c in ids]
    mark = torch.tensor([c * 100.0 + version for c in ids])
    rows = Rows(Ragged.of(lists), torch.zeros(sum(map(len, lists)), 2), ITEMS)
    rows = Rows(
        rows.items, rows.values + mark.repeat_interleave(rows.items.lengths)[:, None], ITEMS
    )
    return {
        "user": mark[:, None].expand(-1, 3).clone(),
        "t": torch.tensor(ids) + version,
        "tuned/items": rows,
    }


def one(drawer: FieldDict, k: int) -> FieldDict:
    pick = torch.tensor([k])
    return {
        name: v[pick] if isinstance(v, torch.Tensor) else v.take(pick) for name, v in drawer.items()
    }


COHORTS = st.lists(
    st.permutations(range(N)).flatmap(lambda p: st.integers(1, N).map(lambda k: p[:k])), max_size=8
)


def filled(cohorts: list[list[int]]) -> tuple[Store, dict[int, FieldDict]]:
    store, truth = Store(N), {}
    for version, ids in enumerate(cohorts):
        kept = drawer(ids, version)
        store.put(torch.tensor(ids), kept)
        truth |= {c: one(kept, k) for k, c in enumerate(ids)}
    return store, truth


def check(store: Store, truth: dict[int, FieldDict]) -> None:
    for client, kept in truth.items():
        expect_same(store.take(torch.tensor([client])), kept)
    known = sorted(truth, reverse=True)
    if known:
        together = store.take(torch.tensor(known))
        for k, client in enumerate(known):
            expect_same(one(together, k), truth[client])


@given(COHORTS)
@settings(max_examples=80, deadline=None)
def test_a_client_gets_back_what_it_left_last(cohorts: list[list[int]]) -> None:
    check(*filled(cohorts))


@given(COHORTS)
@settings(max_examples=40, deadline=None)
def test_the_state_goes_through_bytes(cohorts: list[list[int]]) -> None:
    store, truth = filled(cohorts)
    again = Store(N)
    for shard in (torch.arange(0, N, 2), torch.arange(1, N, 2)):
        again.load(shard, load(save({k: v.contiguous() for k, v in store.state(shard).items()})))
    check(again, truth)
    again.put(torch.tensor([2, 0]), drawer([2, 0], 77))
    check(again, truth | {c: one(drawer([2, 0], 77), k) for k, c in enumerate((2, 0))})


def test_who_never_trained_keeps_nothing() -> None:
    store, _ = filled([[1, 2]])
    kept = store.take(torch.tensor([0]))
    assert not bool(kept["user"].any()) and not len(kept["tuned/items"].values)


def test_nobody() -> None:
    store, _ = filled([[1, 2]])
    kept = store.take(torch.zeros(0, dtype=torch.long))
    assert len(kept["user"]) == len(kept["tuned/items"]) == 0


def test_old_rows_do_not_pile_up() -> None:
    store, truth = filled([list(range(N))] * 3 + [[0, 1], [2], [3, 4, 5]] * 50)
    check(store, truth)
    held = sum(len(block.values) for block in store.rows["tuned/items"].blocks.values())
    assert held <= 4 * N * 3


def received(store: Store, version_of: dict[int, float]) -> None:
    for client, mark in version_of.items():
        table = store.take(torch.tensor([client])).get("received/items")
        assert table is None if mark < 0 else bool((table == mark).all())


def table(mark: float) -> FieldDict:
    return {"received/items": torch.full((1, 4, 2), mark)}


def test_received_tables_are_held_once_and_let_go() -> None:
    store = Store(N)
    store.put(torch.tensor([0, 1, 2]), table(1))
    store.put(torch.tensor([3]), table(1))  # another chunk of the same round
    store.put(torch.tensor([1, 4]), table(2))
    received(store, {0: 1, 1: 2, 2: 1, 3: 1, 4: 2, 5: -1})
    assert len(store.received["received/items"].tables) == 2
    versions = store.version_of(torch.arange(N))
    assert versions[0] == versions[2] == versions[3] and versions[1] == versions[4]
    assert len(versions.unique()) == 3
    with pytest.raises(ValueError, match="asked separately"):
        store.take(torch.tensor([0, 1]))
    store.put(torch.tensor([0, 2, 3]), table(3))
    assert len(store.received["received/items"].tables) == 2


def test_received_tables_go_through_bytes() -> None:
    store, again = Store(N), Store(N)
    store.put(torch.tensor([0, 1, 2]), table(1))
    store.put(torch.tensor([1, 4]), table(2))
    for shard in (torch.arange(0, N, 2), torch.arange(1, N, 2)):
        again.load(shard, load(save({k: v.contiguous() for k, v in store.state(shard).items()})))
    received(again, {0: 1, 1: 2, 2: 1, 3: -1, 4: 2, 5: -1})
    again.put(torch.tensor([0]), table(2))  # the newest version is known again
    assert len(again.received["received/items"].tables) == 2
    assert again.version_of(torch.tensor([0])) == again.version_of(torch.tensor([4]))


def numbers(meter: Meter) -> dict[str, Any]:
    return {
        "up": meter.up,
        "down": meter.down,
        "dropped": meter.dropped,
        "bytes": meter.bytes,
        "sends": meter.sends_N,
    }


def test_the_meter_goes_through_bytes() -> None:
    meter, again = Meter(4), Meter(4)
    meter.count("train", "update/items", 70, torch.tensor([0, 2]))
    meter.count("train", "update/items", 30, torch.tensor([2]))
    meter.count("report", "m/a/b:c", 5, torch.tensor([1]))
    meter.drop("not finite", 2)
    meter.drop("odd shape", 0)
    again.load(load(save(meter.state())))
    expect_same(numbers(meter), numbers(again))
    assert again.most_sends() == {("train", "update/items"): 2, ("report", "m/a/b:c"): 1}
    assert again.dropped == {"not finite": 2}

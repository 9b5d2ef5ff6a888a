"""Tables held as a base and a client's own rows: the same bits as whole tables, in less room."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from covey.engine.fleet.deltas import Deltas
from covey.engine.fleet.hosted import Hosted
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.fleet.store import Store
from covey.engine.method import Method
from covey.methods.cofedrec import CoClusters, ItemContrast
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing.compare import expect_same
from covey.testing.world import Play, Setting, World

N, ITEMS, WIDTH = 5, 6, 3
ODD = (
    0.0,
    -0.0,
    float("nan"),
    1.0,
    2.5,
)  # zeros of both signs, and what is not even equal to itself
TABLES = st.lists(st.sampled_from(ODD), min_size=ITEMS * WIDTH, max_size=ITEMS * WIDTH)
HANDED = st.tuples(
    st.booleans(), st.lists(st.integers(0, N - 1), min_size=1, max_size=N, unique=True), TABLES
)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


@given(st.lists(HANDED, min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_a_client_gets_back_the_bits_that_it_left(
    events: list[tuple[bool, list[int], list[float]]],
) -> None:
    """Some tables are offered first, as if the server handed them out; clients change one row."""
    store, truth = Deltas.empty(N), torch.zeros(N, ITEMS, WIDTH)
    for offered, ids, flat in events:
        table_CID = torch.tensor(flat).view(1, ITEMS, WIDTH).repeat(len(ids), 1, 1)
        if offered:
            store.offer(table_CID[0])
        else:
            table_CID[:, 1] += torch.arange(len(ids))[:, None]
        store.put(torch.tensor(ids), table_CID)
        truth[ids] = table_CID
    assert same_bits(store.take(torch.arange(N)), truth)
    every_N, again = torch.arange(N), Deltas.empty(N)
    for half in every_N.split(N // 2 + 1):  # as from the files of two shards
        again.load(half, load(save(store.state(half))))
    assert same_bits(again.take(every_N), truth)
    assert len(again.bases) <= len(store.bases)


def test_only_own_rows_are_held() -> None:
    base = torch.randn(1000, 8)
    store = Deltas.empty(50)
    store.offer(base)
    tables = base.repeat(50, 1, 1)
    store.put(torch.arange(50), tables)
    assert store.bytes() == base.numel() * 4
    tables[:, :10] += 1
    store.put(torch.arange(50), tables)
    assert store.bytes() == base.numel() * 4 + 50 * 10 * (8 * 4 + 4)
    for _ in range(3):  # a base is dropped when no client refers to it
        store.offer(torch.randn(1000, 8))
        store.put(torch.arange(50), store.bases[store.latest].expand(50, -1, -1))
    assert list(store.bases) == [3] and store.bytes() == base.numel() * 4


def test_a_checkpoint_with_whole_tables_is_read() -> None:
    whole, sparse = Store(4), Store(4, sparse=frozenset({"items"}))
    kept = {"items": torch.randn(4, 5, 2), "user": torch.randn(4, 2)}
    whole.put(torch.arange(4), kept)
    sparse.load(torch.arange(4), whole.state(torch.arange(4)))
    assert set(sparse.deltas) == {"items"} and set(sparse.dense) == {"user"}
    expect_same(sparse.take(torch.tensor([3, 1])), whole.take(torch.tensor([3, 1])))


def play_of(world: World, weight: float) -> Play:
    solver = Local(
        "sgd",
        0.1,
        2,
        16,
        (("score", "bias"), ("items",)),
        rates={"items": 0.2},
        per_item=("items",),
    )
    model, contrast = LinearScore(4, keep_items=True), ItemContrast(weight=weight)
    method = Method(
        model, Bce(saturating=True), world.catalogue, solver, (contrast,), CoClusters(categories=3)
    )
    return Play(method, world, Setting(cohort=9)).begin()


def test_a_run_is_the_same_in_whole_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds with some of the clients, some of whom are of the group."""
    world = World.of(14, 40)
    sparse = play_of(world, 0.0).go(5)
    assert isinstance(sparse.fleet, SimulatedFleet) and set(sparse.fleet.store.deltas) == {"items"}
    monkeypatch.setattr(Hosted, "_empty", lambda self, n: Store(n))
    whole = play_of(world, 0.0).go(5)
    assert isinstance(whole.fleet, SimulatedFleet) and "items" in whole.fleet.store.dense
    every_N = torch.arange(14)
    assert torch.equal(
        whole.fleet.store.take(every_N)["items"], sparse.fleet.store.take(every_N)["items"]
    )
    expect_same(whole.outcome(), sparse.outcome())


def test_a_loss_that_moves_every_row_has_whole_tables() -> None:
    play = play_of(World.of(14, 40), 0.05).go(1)
    assert isinstance(play.fleet, SimulatedFleet) and not play.fleet.store.deltas

"""Randomness: the published generator, one stream per client, distributions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from covey.core.rng import GOLDEN, Rng, mix, mixed

MANY = 20_000
LEAST = 1e-4  # p-values of fixed seeds, so a failure is a bug and not chance


def unsigned(x: torch.Tensor) -> list[int]:
    return [v % 2**64 for v in x.flatten().tolist()]


def one(seed: int = 3, purpose: str = "test") -> Rng:
    return Rng.of(seed, 1, torch.tensor([5])).fold(purpose)


def test_known_answers_of_splitmix64() -> None:
    start = Rng(torch.tensor([1234567]), torch.tensor([0]))
    assert unsigned(start.bits(3)) == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_golden_ratio() -> None:
    assert GOLDEN % 2**64 == 0x9E3779B97F4A7C15


@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=8, unique=True),
    st.integers(0, 2**40),
    st.integers(0, 10**6),
    st.integers(0, 7),
)
@settings(max_examples=50, deadline=None)
def test_a_client_draws_the_same_alone_as_in_a_cohort(
    ids: list[int], seed: int, round: int, which: int
) -> None:
    which %= len(ids)
    together = Rng.of(seed, round, torch.tensor(ids)).fold("x")
    alone = Rng.of(seed, round, torch.tensor([ids[which]])).fold("x")
    assert torch.equal(together.bits(2, 3)[which], alone.bits(2, 3)[0])
    assert torch.equal(together.take(torch.tensor([which])).normal(4), alone.normal(4))
    assert torch.equal(together.home("y").bits(2)[which], alone.home("y").bits(2)[0])


def test_streams_differ_by_seed_round_client_and_purpose() -> None:
    keys = {
        int(Rng.of(seed, round, torch.tensor([client])).fold(purpose).key_C)
        for seed in range(4)
        for round in range(5)
        for client in range(6)
        for purpose in ("a", "b", "ab", 1, 2)
    }
    keys |= {int(Rng.server(seed, round, "a").key_C) for seed in range(4) for round in range(5)}
    assert len(keys) == 4 * 5 * 6 * 5 + 20


def test_streams_of_neighbours_are_uncorrelated() -> None:
    u_CM = Rng.of(0, 1, torch.arange(50)).uniform(MANY // 10)
    off_diagonal = torch.corrcoef(u_CM) - torch.eye(50)
    assert float(off_diagonal.abs().max()) < 5 / (MANY // 10) ** 0.5


def test_home_repeats_in_every_round_and_nothing_else_does() -> None:
    ids_C = torch.arange(4)
    first, second = (Rng.of(1, round, ids_C).fold("loss") for round in (1, 2))
    assert torch.equal(first.home("stored").bits(3), second.home("stored").bits(3))
    assert not torch.equal(first.bits(3), second.bits(3))


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.lists(st.integers(0, 9), min_size=6, max_size=6),
)
@settings(max_examples=50, deadline=None)
def test_the_first_ragged_words_do_not_depend_on_how_many_are_asked_for(
    ask: list[int], more: list[int]
) -> None:
    rng = Rng.of(0, 1, torch.arange(len(ask)))
    few = rng.ragged_bits(torch.tensor(ask))
    many = rng.ragged_bits(torch.tensor(ask) + torch.tensor(more[: len(ask)]))
    assert few.lengths.tolist() == ask
    for c in range(len(ask)):
        pick = torch.tensor([c])
        mine = few.take(pick).values
        assert torch.equal(mine, many.take(pick).values[: ask[c]])
        assert torch.equal(mine, rng.bits(9)[c, : ask[c]])


def test_uniform() -> None:
    u = one().uniform(MANY)
    assert u.dtype == torch.float64 and float(u.min()) >= 0 and float(u.max()) < 1
    assert stats.kstest(u[0].numpy(), "uniform").pvalue > LEAST


def test_uniform_over_clients() -> None:
    u = Rng.of(0, 1, torch.arange(MANY)).uniform(1)[:, 0]
    assert stats.kstest(u.numpy(), "uniform").pvalue > LEAST


def test_uniform_over_rounds() -> None:
    u = [float(Rng.of(0, round, torch.tensor([0])).uniform(1)) for round in range(2000)]
    assert stats.kstest(u, "uniform").pvalue > LEAST


def test_ragged_uniform() -> None:
    u = Rng.of(0, 1, torch.arange(100)).ragged_uniform(torch.full((100,), MANY // 100)).values
    assert stats.kstest(u.numpy(), "uniform").pvalue > LEAST


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal(dtype: torch.dtype) -> None:
    x = one().normal(100, MANY // 100, dtype=dtype)
    assert x.dtype == dtype and x.shape == (1, 100, MANY // 100)
    assert stats.kstest(x.double().flatten().numpy(), "norm").pvalue > LEAST


def test_laplace() -> None:
    x = one().laplace(0.7, MANY, dtype=torch.float64)
    assert bool(x.isfinite().all())
    assert stats.kstest(x[0].numpy(), stats.laplace(scale=0.7).cdf).pvalue > LEAST


def test_laplace_is_finite_at_the_ends_of_the_unit_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = torch.tensor([[0.0, 1 - 2.0**-53, 0.5]], dtype=torch.float64)
    monkeypatch.setattr(Rng, "uniform", lambda self, *shape: ends)
    assert bool(one().laplace(1.0, 3).isfinite().all())


def test_normal_is_finite_at_the_ends_of_the_unit_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    monkeypatch.setattr(Rng, "uniform", lambda self, *shape: ends.expand(1, 2, 2))
    assert bool(one().normal(2).isfinite().all())


def test_integers() -> None:
    x = one().integers(7, MANY)
    assert int(x.min()) == 0 and int(x.max()) == 6
    assert stats.chisquare(np.bincount(x[0].numpy(), minlength=7)).pvalue > LEAST


def test_permutation() -> None:
    order_CN = Rng.of(0, 1, torch.arange(6000)).permutation(3)
    assert torch.equal(order_CN.sort(1).values, torch.arange(3).expand(6000, 3))
    code = order_CN[:, 0] * 3 + order_CN[:, 1]
    assert (
        stats.chisquare(np.bincount(code.numpy(), minlength=9)[[1, 2, 3, 5, 6, 7]]).pvalue > LEAST
    )


def test_many_folds_are_the_single_ones() -> None:
    rng = Rng.of(3, 2, torch.tensor([5, 9]))
    for n, one in enumerate(rng.folds(4)):
        assert torch.equal(one.key_C, rng.fold(n).key_C) and torch.equal(one.home_C, rng.home_C)


@pytest.mark.parametrize("word", [0, 1, -1, 7, 2**63 - 1, -(2**63), 123456789012345])
def test_a_number_is_mixed_as_a_tensor_is(word: int) -> None:
    assert mixed(word) == int(mix(torch.tensor(word)))


@pytest.mark.parametrize(("seed", "number", "purpose"), [(0, 0, "a"), (3, 17, "b"), (2**40, 5, 7)])
def test_the_server_is_the_client_before_the_first(
    seed: int, number: int, purpose: str | int
) -> None:
    server, same = (
        Rng.server(seed, number, purpose),
        Rng.of(seed, number, torch.tensor([-1])).fold(purpose),
    )
    assert torch.equal(server.key_C, same.key_C) and torch.equal(server.home_C, same.home_C)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 2000), st.integers(0, 10_000))
def test_places_of_an_order_hold_each_number_once(n: int, seed: int) -> None:
    order_CN = Rng.of(seed, 1, torch.arange(3)).order_at(n, torch.arange(n).expand(3, n))
    assert torch.equal(order_CN.sort(dim=1).values, torch.arange(n).expand(3, n))
    assert n < 10 or not torch.equal(order_CN[0], order_CN[1])


@pytest.mark.parametrize("n", [5, 257, 1024, 20_033])
def test_at_each_place_every_number_is_as_likely_and_so_is_every_pair(n: int) -> None:
    place_CK = torch.tensor([0, n - 1]).expand(MANY, 2)
    one_C, two_C = Rng.of(7, 1, torch.arange(MANY)).order_at(n, place_CK).T
    eighth = np.arange(n) * 8 // n
    share_8 = np.bincount(eighth, minlength=8) / n
    pairs = np.bincount(eighth[one_C] * 8 + eighth[two_C], minlength=64)
    both = (np.outer(share_8, share_8) * n - np.diag(share_8)).ravel() / (
        n - 1
    )  # two different numbers
    assert not (one_C == two_C).any() and not pairs[both == 0].any()
    assert stats.chisquare(pairs[both > 0], both[both > 0] * MANY).pvalue > LEAST

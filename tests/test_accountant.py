"""Composition: the sum, the exact value for Gaussian noise, and the library's upper bound."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from covey.contract import accountant
from covey.contract.accountant import (
    EXACT,
    LIBRARY,
    Release,
    basic,
    gaussian_epsilon,
    gaussian_multiplier,
    tighter,
)


def test_the_plain_sum_by_hand() -> None:
    assert basic([]) == (0, 0)
    assert basic([Release(4.0, count=20), Release(0.5, 1e-6, count=3)]) == (
        81.5,
        pytest.approx(3e-6),
    )


def test_gaussians_together_are_one_gaussian() -> None:
    """100 with multiplier z are one with z / 10. Two different ones: 1/z^2 add up."""
    z = gaussian_multiplier(1.0, 1e-6)
    found = tighter([Release(1.0, 1e-6, z, 100)], 1e-5)
    assert found == (pytest.approx(gaussian_epsilon(1e-5, z / 10)), EXACT)
    assert found[0] < 20  # adding up gives 100
    two = tighter([Release(1.0, 1e-6, 3.0), Release(1.0, 1e-6, 4.0)], 1e-5)
    assert two is not None and two[0] == pytest.approx(gaussian_epsilon(1e-5, 12 / 5))


@given(st.integers(1, 60), st.floats(0.05, 0.9), st.sampled_from([1e-3, 1e-5, 1e-8]))
@settings(max_examples=15, deadline=None)
def test_the_library_bounds_randomised_response(k: int, epsilon: float, delta: float) -> None:
    """At the library's epsilon, k-fold randomised response has at most this delta."""
    pytest.importorskip("dp_accounting", reason="pip install 'covey[privacy]'")
    found = tighter([Release(epsilon, count=k)], delta)
    if found is None:
        return
    assert found[1] == LIBRARY and found[0] < k * epsilon
    p = 1 / (1 + math.exp(-epsilon))
    wins = range(k + 1)
    loss = [(2 * w - k) * epsilon for w in wins]
    exact = sum(
        max(0.0, stats.binom.pmf(w, k, p) - math.exp(found[0]) * stats.binom.pmf(w, k, 1 - p))
        for w, x in zip(wins, loss, strict=True)
        if x > found[0]
    )
    assert exact <= delta * (1 + 1e-6)


def test_the_library_by_known_figures() -> None:
    pytest.importorskip("dp_accounting", reason="pip install 'covey[privacy]'")
    found = tighter([Release(0.5, count=100)], 1e-5)
    assert found == (pytest.approx(31.17, abs=0.01), LIBRARY)
    mixed = tighter(
        [Release(0.5, count=50), Release(1.0, 1e-7, gaussian_multiplier(1.0, 1e-7), 4)], 1e-5
    )
    assert mixed is not None and 18 < mixed[0] < 29


def test_ours_agrees_with_the_library_on_gaussians() -> None:
    pld = pytest.importorskip(
        "dp_accounting.pld.privacy_loss_distribution", reason="pip install 'covey[privacy]'"
    )
    theirs = pld.from_gaussian_mechanism(2.0).self_compose(10).get_epsilon_for_delta(1e-5)
    assert gaussian_epsilon(1e-5, 2 / math.sqrt(10)) == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize(
    "releases",
    [
        [],
        [Release(4.0, count=20)],  # losses of nearly 4 each time do not cancel out
        [Release(math.inf)],
        [Release(1e-6, count=2_000_000)],
        [Release(0.5, count=0)],
    ],
)
def test_where_nothing_is_tighter(releases: list[Release]) -> None:
    assert tighter(releases, 1e-5) is None


def test_without_the_library_and_without_a_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tighter([Release(0.5, count=100)], 0.0) is None
    monkeypatch.setattr(accountant, "find_spec", lambda name: None)
    assert tighter([Release(0.5, count=100)], 1e-5) is None
    assert tighter([Release(1.0, 1e-6, 4.0, 100)], 1e-5) is not None

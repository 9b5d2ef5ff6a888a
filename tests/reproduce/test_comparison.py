"""Comparisons: numbers worked by hand, and simulations of equal and of different methods.

Shape suffixes: R = repeats of a simulation, S = seeds, U = users.
"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

from covey.study.papers.claims import Claim, judge
from covey.study.papers.comparison import compare, holm

Array = NDArray[np.float64]
REPEATS = 100
FAIR = {"seeds": [0, 1, 2], "errors": [], "tuned": 8, "work": 100.0}  # a cell that may be compared


def test_by_hand() -> None:
    """Differences of two seeds (rows) and three users: mean 3, users 2, 3, 4, and seeds 2, 4."""
    d_SU = np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]])
    found = compare(d_SU, np.zeros((2, 3)))
    assert found.difference == 3
    assert found.from_users == pytest.approx(1 / 3)  # variance 1 of user means, of three
    assert found.from_seeds == pytest.approx(1.0)  # variance 2 of seed means, of two
    half = math.sqrt(4.302653**2 / 3 + 12.706205**2)  # t of 2 and of 1 degrees of freedom
    assert (found.low, found.high) == (pytest.approx(3 - half), pytest.approx(3 + half))
    assert (found.users, found.dropped, found.seeds) == (3, 0, 2)


def test_p_is_where_the_interval_ends() -> None:
    rng = np.random.default_rng(0)
    a_SU, b_SU = rng.normal(size=(2, 5, 40))
    found = compare(a_SU, b_SU)
    half = found.high - found.difference
    edge = compare(a_SU - found.difference + half, b_SU)  # moved so that the interval touches 0
    assert edge.low == pytest.approx(0, abs=1e-9)
    assert edge.p == pytest.approx(0.05)


def test_without_seeds_it_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(1)
    a_U, b_U = rng.random((2, 30))
    found = compare(np.tile(a_U, (3, 1)), np.tile(b_U, (3, 1)))
    known = stats.ttest_rel(a_U, b_U)
    assert found.p == pytest.approx(known.pvalue)
    assert (found.low, found.high) == pytest.approx(known.confidence_interval())


def test_a_shift_of_everybody_is_one_observation() -> None:
    """Seeds that shift all users alike, against a constant: the t-test of the seeds."""
    shift_S = np.array([0.02, 0.05, -0.01, 0.04])
    found = compare(np.tile(shift_S[:, None], (1, 1000)), np.zeros((4, 1000)))
    known = stats.ttest_1samp(shift_S, 0.0)
    assert found.p == pytest.approx(known.pvalue)
    assert (found.low, found.high) == pytest.approx(known.confidence_interval())


def test_variance_of_known_parts() -> None:
    """Users 0.3, seeds 0.1, residual 0.5: the residual counts twice in the variance."""
    rng, seeds, users = np.random.default_rng(2), 4, 50
    found = []
    for _ in range(400):
        parts = 0.3 * rng.normal(size=(1, users)) + 0.1 * rng.normal(size=(seeds, 1))
        found.append(
            compare(parts + 0.5 * rng.normal(size=(seeds, users)), np.zeros((seeds, users)))
        )
    true = 0.3**2 / users + 0.1**2 / seeds + 0.5**2 / (users * seeds)
    means = np.var([c.difference for c in found])
    assert means == pytest.approx(true, rel=0.2)
    users_part, seeds_part = (
        np.mean([getattr(c, f"from_{k}") for c in found]) for k in ("users", "seeds")
    )
    assert users_part == pytest.approx(0.3**2 / users + 0.5**2 / (users * seeds), rel=0.05)
    assert seeds_part == pytest.approx(0.1**2 / seeds + 0.5**2 / (users * seeds), rel=0.2)
    assert users_part + seeds_part > true


def test_the_larger_reading_of_seeds_counts() -> None:
    """Seeds move both methods alike: the pairs do not vary, but the test does not rely on it."""
    rng = np.random.default_rng(3)
    shift_S1 = np.array([[0.0], [0.1], [0.2]])
    base_U, extra_U = rng.random((2, 50))
    alike = compare(base_U + extra_U + shift_S1, base_U + shift_S1)
    assert alike.from_seeds == pytest.approx(2 * 0.01 / 3)
    apart = compare(base_U + extra_U + shift_S1, base_U - shift_S1)
    assert apart.from_seeds == pytest.approx(4 * 0.01 / 3)  # the pairs, which move by 0.2


def test_users_not_measured_are_dropped() -> None:
    rng = np.random.default_rng(4)
    a_SU, b_SU = rng.random((2, 3, 20))
    whole = compare(a_SU[:, 2:], b_SU[:, 2:])
    a_SU[:, 0], b_SU[1, 1] = np.nan, np.nan
    found = compare(a_SU, b_SU)
    assert (found.users, found.dropped) == (18, 2)
    assert (found.difference, found.p) == (whole.difference, whole.p)


def test_too_little_to_say() -> None:
    one = compare(np.ones((1, 9)), np.zeros((1, 9)))
    assert one.difference == 1 and math.isnan(one.p) and "one seed" in one.why
    none = compare(np.full((3, 9), np.nan), np.zeros((3, 9)))
    assert math.isnan(none.difference) and "fewer than two users" in none.why


def test_equal_figures_are_not_different() -> None:
    same_SU = np.random.default_rng(5).random((3, 20))
    assert compare(same_SU, same_SU).p == 1
    assert compare(same_SU, same_SU + 1e-15).p == 1  # rounding of another machine


def test_a_handful_of_users_decides_nothing() -> None:
    """Four of 900 users are served better and none worse, without other spread: p = 1/8."""
    a_SU, b_SU = np.zeros((2, 5, 900))
    a_SU[:, :4] = 1
    assert stats.ttest_rel(a_SU[0], b_SU[0]).pvalue < 0.05
    assert compare(a_SU, b_SU).p == 2 / 2**4


def test_swapped_sides() -> None:
    a_SU, b_SU = np.random.default_rng(6).random((2, 3, 30))
    one, two = compare(a_SU, b_SU), compare(b_SU, a_SU)
    assert (one.difference, one.low, one.p) == pytest.approx((-two.difference, -two.high, two.p))


def test_shapes_have_to_agree() -> None:
    with pytest.raises(ValueError, match="both must be"):
        compare(np.zeros((3, 4)), np.zeros((3, 5)))


def test_holm_by_hand() -> None:
    """Sorted, they count 4, 3, 2, 1 times: 0.02, 0.03, 0.06, and 0.04 is raised to 0.06."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.3, 0.9]) == pytest.approx([0.6, 0.9])
    assert holm([0.7, 0.9]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_only_raises_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    by_p = [q for _, q in sorted(zip(p_values, adjusted, strict=True))]
    assert by_p == sorted(by_p)


# Simulated tables. A user's held-out item is ranked among candidates by the effects of the user, of
# the seed (in both methods), of method and user, of method and seed, and by a residual.
USUAL = dict(
    level=0.8, candidates=100, user=1.0, seed=0.0, method_user=0.4, method_seed=0.05, left=0.5
)
SCENARIOS: dict[str, dict[str, Any]] = {
    "hits": dict(metric="hit"),
    "ndcg": {},
    "seeds of large spread": dict(method_seed=0.2),
    "seeds without spread": dict(method_seed=0.0),
    "seeds move both methods": dict(metric="hit", seed=0.1),
    "all users alike": dict(method_user=0.0, method_seed=0.02),
    "no seed": dict(method_seed=0.0, left=0.0),
    "many zeros": dict(level=-1.0, candidates=3000, user=1.5),
    "many zeros, heavy tail": dict(level=-2.0, candidates=3000, tail=True),
}


def _simulated(
    rng: np.random.Generator,
    seeds: int,
    users: int,
    gain: float = 0.0,
    metric: str = "ndcg",
    tail: bool = False,
    **other: float,
) -> tuple[Array, Array]:
    """Figures of two methods, [R, S, U] each; `gain` is what the first has more."""
    parts = USUAL | other

    def draw(s: int, u: int) -> Array:
        return rng.standard_normal((REPEATS, s, u))

    user_RU = rng.standard_t(2, (REPEATS, 1, users)) if tail else draw(1, users)
    common = parts["level"] + parts["user"] * user_RU + parts["seed"] * draw(seeds, 1)
    out = []
    for more in (gain, 0.0):
        own = parts["method_user"] * draw(1, users) + parts["method_seed"] * draw(seeds, 1)
        better = common + more + own + parts["left"] * draw(seeds, users)
        rank_RSU = np.floor(parts["candidates"] * ndtr(-better)) + 1
        gained = 1.0 if metric == "hit" else 1 / np.log2(rank_RSU + 1)
        out.append(np.where(rank_RSU <= 10, gained, 0.0))
    return out[0], out[1]


def _decided(rng: np.random.Generator, seeds: int, users: int, **scenario: Any) -> tuple[int, int]:
    """How often the first is called better, and how often worse."""
    found = [
        compare(a_SU, b_SU)
        for a_SU, b_SU in zip(*_simulated(rng, seeds, users, **scenario), strict=True)
    ]
    sure = [c.difference > 0 for c in found if c.p < 0.05]
    return sum(sure), len(sure) - sum(sure)


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("name", SCENARIOS)
def test_equal_methods_are_not_told_apart(name: str, seeds: int) -> None:
    assert sum(_decided(np.random.default_rng(7), seeds, 200, **SCENARIOS[name])) <= 5


@pytest.mark.parametrize(
    ("name", "seeds", "least"),
    [
        ("ndcg", 5, 95),
        ("hits", 5, 95),
        ("seeds without spread", 3, 90),
        ("all users alike", 3, 90),
        ("no seed", 3, 95),
    ],
)
def test_a_real_difference_is_seen(name: str, seeds: int, least: int) -> None:
    """An NDCG of 0.3 against 0.2, or hits of 0.47 against 0.34."""
    better, worse = _decided(np.random.default_rng(8), seeds, 200, gain=0.4, **SCENARIOS[name])
    assert better >= least
    assert worse == 0


def test_one_observation_per_user_would_see_what_is_not_there() -> None:
    """Why seeds count: by users alone, equal methods of three seeds differ every other time."""
    a_RSU, b_RSU = _simulated(np.random.default_rng(9), 3, 200, method_seed=0.2)
    p_R = stats.ttest_rel(a_RSU.mean(1), b_RSU.mean(1), axis=1).pvalue
    assert (p_R < 0.05).mean() > 0.3


@pytest.mark.parametrize("seeds", [3, 5])
def test_a_planted_fake_difference_is_not_decided(seeds: int) -> None:
    """Two equal methods in a table of two metrics, a hundred times over."""
    tables = {
        m: _simulated(np.random.default_rng(11), seeds, 200, metric=m) for m in ("hit", "ndcg")
    }  # same ranks
    claim = Claim("A beats B", "A", "B", ("one",), ("hit@10", "ndcg@10"))
    verdicts = []
    for r in range(REPEATS):

        def users(row: str, column: str, metric: str, r: int = r) -> Array:
            return tables[metric.split("@")[0]]["AB".index(row)][r]

        verdicts.append(judge([claim], lambda row, column: FAIR, users)[0]["verdict"])
    assert verdicts.count("not decided") >= 95

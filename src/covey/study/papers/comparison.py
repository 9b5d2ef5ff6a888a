"""Is A better than B? A mean difference over users and seeds, with its interval and p-value.

Users and seeds are both samples; `docs/reproducing.md` derives the interval.
Shape suffixes: S = seeds, U = users.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEVEL = 0.05
ONE_SEED = "one seed says nothing about spread"
SMALLEST_P = 1e-12  # a normal approximation is meaningless below it
DIGITS = 12  # decimals; smaller differences are rounding


@dataclass(frozen=True)
class Comparison:
    """The mean difference over users and seeds, its 95 % interval and two-sided p-value.

    Interval and p-value are NaN if `why` is not empty.
    """

    difference: float
    low: float
    high: float
    p: float
    users: int  # measured in every run of both
    dropped: int  # not measured in at least one of them
    seeds: int
    from_users: float  # part of the variance of the mean that is due to users
    from_seeds: float  # part that is due to seeds
    why: str = ""  # why there is no interval


def compare(better_SU: Array, worse_SU: Array) -> Comparison:
    """Compare two methods that were measured on the same users with the same seeds.

    A user that was not measured is NaN. Runs with the same seed share split and candidates, but not
    the random streams. If the streams are unrelated, pairing by seed is arbitrary and may make the
    spread look small by chance; if they are related, ignoring the pairs may. So the larger of both
    estimates counts, with the S-1 degrees of freedom of pairs.
    """
    better_SU, worse_SU = np.asarray(better_SU, np.float64), np.asarray(worse_SU, np.float64)
    if better_SU.ndim != 2 or better_SU.shape != worse_SU.shape:
        shapes = f"{better_SU.shape} and {worse_SU.shape}"
        raise ValueError(f"figures of shape {shapes}; both must be [seeds, users]")
    known_U = np.logical_and.reduce(np.isfinite(better_SU - worse_SU), axis=0)
    a_SU, b_SU = better_SU[:, known_U], worse_SU[:, known_U]
    seeds, users = a_SU.shape
    dropped = better_SU.shape[1] - users
    d_SU = np.round(a_SU - b_SU, DIGITS)
    difference = float(d_SU.mean()) if d_SU.size else math.nan
    if why := too_few(seeds, users):
        nan = math.nan
        return Comparison(difference, nan, nan, nan, users, dropped, seeds, nan, nan, why)
    d_U = np.round(d_SU.mean(0), DIGITS)
    from_users = float(d_U.var(ddof=1)) / users  # MS_users / (U S)
    paired = float(d_SU.mean(1).var(ddof=1))  # MS_seeds / U
    apart = float(a_SU.mean(1).var(ddof=1) + b_SU.mean(1).var(ddof=1))
    from_seeds = max(paired, apart) / seeds
    parts = ((from_users, users - 1), (from_seeds, seeds - 1))
    half = _half_width(LEVEL, parts)
    # n users that differ can do so in 2^n equally likely directions: no p is below two of these
    p = min(1.0, max(_p_value(abs(difference), parts), 2.0 ** (1 - int(np.count_nonzero(d_U)))))
    low, high = difference - half, difference + half
    return Comparison(difference, low, high, p, users, dropped, seeds, from_users, from_seeds)


def compare_runs(better_S: Array, worse_S: Array) -> Comparison:
    """Compare figures of whole runs, such as extra metrics, where only seeds are a sample."""
    d_S, seeds, nan = np.round(better_S - worse_S, DIGITS), len(better_S), math.nan
    difference = float(d_S.mean())
    if seeds < 2:
        return Comparison(difference, nan, nan, nan, 0, 0, seeds, nan, nan, too_few(seeds, 2))
    apart = float(better_S.var(ddof=1) + worse_S.var(ddof=1))
    from_seeds = max(float(d_S.var(ddof=1)), apart) / seeds
    parts = [(from_seeds, seeds - 1)]
    half, p = _half_width(LEVEL, parts), _p_value(abs(difference), parts)
    low, high = difference - half, difference + half
    return Comparison(difference, low, high, p, 0, 0, seeds, 0.0, from_seeds)


def too_few(seeds: int, users: int) -> str:
    if users < 2:
        return "fewer than two users were measured in both"
    return ONE_SEED if seeds < 2 else ""


def _half_width(p: float, parts: Sequence[tuple[float, int]]) -> float:
    from scipy.special import stdtrit

    return math.sqrt(sum(float(stdtrit(df, p / 2)) ** 2 * variance for variance, df in parts))


def _p_value(distance: float, parts: Sequence[tuple[float, int]]) -> float:
    """Return the p-value whose interval just reaches that far."""
    if distance == 0:
        return 1.0
    if _half_width(SMALLEST_P, parts) <= distance:
        return SMALLEST_P

    from scipy.optimize import brentq

    def beyond(log_p: float) -> float:
        return _half_width(math.exp(log_p), parts) - distance

    return math.exp(float(brentq(beyond, math.log(SMALLEST_P), 0.0, xtol=1e-12)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values: the smallest of m counts m times, the next m-1 times, ..."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, most = [0.0] * len(p_values), 0.0
    for place, i in enumerate(order):
        most = max(most, min(1.0, (len(order) - place) * p_values[i]))
        adjusted[i] = most
    return adjusted

"""Verdicts on claims of the form "A beats B on D": holds, fails or not decided, each with its reason.

Shape suffixes: S = seeds, U = users.

A difference is a mean over users crossed with seeds, and both are samples: of the people that a method could
serve, and of the runs that it could have had. A seed that shifts everybody is one observation, not U. So

    Var(mean) = s2_users / U + s2_seeds / S + s2_residual / (U S)  <=  MS_users / (U S) + MS_seeds / (U S).

The two mean squares of the analysis of variance hold the residual once each; we do not take it off again, for
two reasons. Neither part can then turn out negative, and each is a plain chi-squared variable with U-1 and S-1
degrees of freedom. For those the half-width

    h^2 = t_{U-1}^2 MS_users / (U S) + t_{S-1}^2 MS_seeds / (U S)

covers with 95 % at least, whatever the true shares: P(Z^2 <= x) is concave in x, so it is at least the weighted
mean of what each part alone would cover (Banerjee 1961). Satterthwaite's degrees of freedom are estimated from
the same few seeds that they are to guard against: with 3 seeds whose spread matters as much as that of the
users, they called 6 to 7 of 100 equal pairs different in simulation.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import stdtrit

Array = NDArray[np.float64]
Cell = Mapping[str, Any]

LEVEL = 0.05
WORK = 1.1  # the larger amount of local work over the smaller, at most
SMALLEST_P = 1e-12  # below it a normal approximation says nothing
DIGITS = 12  # differences smaller than that are rounding, not ranking


@dataclass(frozen=True)
class Comparison:
    """The mean difference over users and seeds, its 95 % interval and two-sided p; NaN where `why` says so."""

    difference: float
    low: float
    high: float
    p: float
    users: int  # measured in every run of both
    dropped: int  # not measured in one of them at least
    seeds: int
    from_users: float  # what users as a sample add to the variance of the mean
    from_seeds: float
    why: str = ""  # why there is no interval


def compare(better_SU: Array, worse_SU: Array) -> Comparison:
    """Compares two methods measured on the same users with the same seeds.

    Equal index of seed means equal split and candidates, but not equal random streams. Where the streams are
    unrelated, the pairing of seeds is arbitrary and may make the spread look small by chance; where they are
    related, ignoring it may. So the larger of both readings counts, with the S-1 degrees of freedom of pairs.
    """
    better_SU, worse_SU = np.asarray(better_SU, np.float64), np.asarray(worse_SU, np.float64)
    if better_SU.ndim != 2 or better_SU.shape != worse_SU.shape:
        raise ValueError(f"figures of shape {better_SU.shape} and {worse_SU.shape}; both are [seeds, users]")
    known_U = np.logical_and.reduce(np.isfinite(better_SU - worse_SU), axis=0)
    a_SU, b_SU = better_SU[:, known_U], worse_SU[:, known_U]
    seeds, users = a_SU.shape
    dropped = better_SU.shape[1] - users
    d_SU = np.round(a_SU - b_SU, DIGITS)
    difference = float(d_SU.mean()) if d_SU.size else math.nan
    why = too_few(seeds, users)
    if why:
        return Comparison(difference, math.nan, math.nan, math.nan, users, dropped, seeds, math.nan, math.nan, why)
    d_U = np.round(d_SU.mean(0), DIGITS)
    from_users = float(d_U.var(ddof=1)) / users  # MS_users / (U S)
    paired = float(d_SU.mean(1).var(ddof=1))  # MS_seeds / U
    apart = float(a_SU.mean(1).var(ddof=1) + b_SU.mean(1).var(ddof=1))
    from_seeds = max(paired, apart) / seeds
    parts = ((from_users, users - 1), (from_seeds, seeds - 1))
    half = _half_width(LEVEL, parts)
    # n users who differ at all can do so in 2^n equally likely directions: no p is below two of these
    p = min(1.0, max(_p_value(abs(difference), parts), 2.0 ** (1 - int(np.count_nonzero(d_U)))))
    low, high = difference - half, difference + half
    return Comparison(difference, low, high, p, users, dropped, seeds, from_users, from_seeds)


def compare_runs(better_S: Array, worse_S: Array) -> Comparison:
    """Figures of whole runs, such as what a method told at the end: only seeds are a sample."""
    d_S, seeds, nan = np.round(better_S - worse_S, DIGITS), len(better_S), math.nan
    difference = float(d_S.mean())
    if seeds < 2:
        return Comparison(difference, nan, nan, nan, 0, 0, seeds, nan, nan, too_few(seeds, 2))
    apart = float(better_S.var(ddof=1) + worse_S.var(ddof=1))
    from_seeds = max(float(d_S.var(ddof=1)), apart) / seeds
    half, p = (f(x, ((from_seeds, seeds - 1),)) for f, x in ((_half_width, LEVEL), (_p_value, abs(difference))))
    return Comparison(difference, difference - half, difference + half, p, 0, 0, seeds, 0.0, from_seeds)


def too_few(seeds: int, users: int) -> str:
    if users < 2:
        return "fewer than two users were measured in both"
    return "one seed says nothing about spread" if seeds < 2 else ""


def _half_width(p: float, parts: Sequence[tuple[float, int]]) -> float:
    return math.sqrt(sum(float(stdtrit(df, p / 2)) ** 2 * variance for variance, df in parts))


def _p_value(distance: float, parts: Sequence[tuple[float, int]]) -> float:
    """The p whose interval just reaches that far."""
    if distance == 0:
        return 1.0
    if _half_width(SMALLEST_P, parts) <= distance:
        return SMALLEST_P
    beyond = lambda log_p: _half_width(math.exp(log_p), parts) - distance
    return math.exp(float(brentq(beyond, math.log(SMALLEST_P), 0.0, xtol=1e-12)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values: of m tests the smallest counts m times, the next m-1 times, none less than one before."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, most = [0.0] * len(p_values), 0.0
    for place, i in enumerate(order):
        most = max(most, min(1.0, (len(order) - place) * p_values[i]))
        adjusted[i] = most
    return adjusted


@dataclass(frozen=True)
class Claim:
    """A paper's sentence, as tests: row `better` beats row `worse` in each column and metric.

    A metric may be told by a part ("co-clusters.often") or a mean of rounds ("course.er@5"), `worse` a number ("0.5").
    """

    text: str
    better: str
    worse: str
    columns: tuple[str, ...]
    metrics: tuple[str, ...]
    against: str = ""  # the column in which `worse` stands; "": the same


@dataclass(frozen=True)
class Outcome:
    """One metric in one column. Figures are None where nothing could be compared."""

    better: str
    worse: str
    column: str
    against: str
    metric: str
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    users: int = 0
    dropped: int = 0
    seeds: int = 0
    verdict: str = "not decided"
    reason: str = ""


def judge(
    claims: Sequence[Claim],
    cell: Callable[[str, str], Cell | None],
    users: Callable[[str, str, str], Array | None],
    known: Mapping[Outcome, Comparison] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """The claims of a table with verdicts, reasons and tests, as its record holds them.

    `cell(row, column)` gives a cell of the record, `users(row, column, metric)` the figures [S, U] behind it, `known`
    what was compared before.
    Holm's correction is over all tests of the table, also those without figures: a failed run must not make
    the others look better.
    """
    found = [[_measured(test, cell, users, known.get(test)) for test in tests_of(claim)] for claim in claims]
    p_values = [1.0 if c is None or math.isnan(c.p) else c.p for tests in found for _, c, _, _ in tests]
    adjusted = iter(holm(p_values))
    out = []
    for claim, tests in zip(claims, found):
        judged = [_judged(*measured, next(adjusted), len(p_values)) for measured in tests]
        verdict, reason = _together(judged)
        out.append(
            {"text": claim.text, "verdict": verdict, "reason": reason, "tests": [asdict(test) for test in judged]}
        )
    return out


def tests_of(claim: Claim) -> list[Outcome]:
    return [
        Outcome(claim.better, claim.worse, column, claim.against or column, metric)
        for column in claim.columns
        for metric in claim.metrics
    ]


def is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


Measured = tuple[Outcome, Comparison | None, str, str]  # what forbids a verdict, what is to be said beside it


def _measured(
    test: Outcome,
    cell: Callable[[str, str], Cell | None],
    users: Callable[[str, str, str], Array | None],
    known: Comparison | None,
) -> Measured:
    if is_number(test.worse):
        if known:
            return test, known, "", ""
        figures = users(test.better, test.column, test.metric)
        if figures is None:
            return test, None, f"runs are missing: {test.better} has no {test.metric} in {test.column}", ""
        return test, _difference(figures, np.full_like(figures, float(test.worse)), test.metric), "", ""
    sides = ((test.better, test.column), (test.worse, test.against))
    names = [row if test.better != test.worse else f"{row} in {column}" for row, column in sides]
    cells = [cell(*side) for side in sides]
    one, two = cells
    if one is None or two is None:
        row, column = sides[0 if one is None else 1]
        return test, None, f"runs are missing: {row} was not run in {column}", ""
    forbidden = _missing(one, two, *names) or _untuned(one, two, *names) or _unequal(one, two, *names)
    if known:
        return test, known, forbidden, _exempt(one, two, *names)
    a_SU, b_SU = (users(*side, test.metric) for side in sides)
    if a_SU is None or b_SU is None:
        name = names[0 if a_SU is None else 1]
        return test, None, forbidden or f"runs are missing: {name} has no {test.metric} of single users", ""
    if np.shape(a_SU) != np.shape(b_SU):
        shapes = " and ".join(f"{len(x)} seeds of {np.shape(x)[1]} users" for x in (a_SU, b_SU))
        return test, None, forbidden or f"runs are missing: {shapes} cannot be paired", ""
    return test, _difference(a_SU, b_SU, test.metric), forbidden, _exempt(one, two, *names)


def _difference(a_SU: Array, b_SU: Array, metric: str) -> Comparison:
    return compare_runs(a_SU[:, 0], b_SU[:, 0]) if "." in metric else compare(a_SU, b_SU)


def _missing(one: Cell, two: Cell, a: str, b: str) -> str:
    for name, found in ((a, one), (b, two)):
        if found["errors"]:
            return f"runs are missing: {name} has none with seed {', '.join(str(e['seed']) for e in found['errors'])}"
    if list(one["seeds"]) != list(two["seeds"]):
        return f"runs are missing: {a} has seeds {one['seeds']}, {b} {two['seeds']}"
    return ""


def _untuned(one: Cell, two: Cell, a: str, b: str) -> str:
    if one["tuned"] is None or two["tuned"] is None or one["tuned"] == two["tuned"]:
        return ""
    return f"tuning budgets differ: {one['tuned']} trials for {a}, {two['tuned']} for {b}"


def _unequal(one: Cell, two: Cell, a: str, b: str) -> str:
    if one["work"] is None or two["work"] is None:
        return ""
    if max(one["work"], two["work"]) <= WORK * min(one["work"], two["work"]):
        return ""
    return f"local work differs: {one['work']:.4g} epochs per client for {a}, {two['work']:.4g} for {b}"


def _exempt(one: Cell, two: Cell, a: str, b: str) -> str:
    idle = [name for name, found in ((a, one), (b, two)) if found["work"] is None]
    fixed = [name for name, found in ((a, one), (b, two)) if found["tuned"] is None]
    said = [f"{' and '.join(idle)}: nothing is trained on devices, so no local work to compare"] if idle else []
    said += [f"{' and '.join(fixed)}: nothing to tune"] if fixed else []
    return "; ".join(said)


def _judged(test: Outcome, found: Comparison | None, forbidden: str, beside: str, p_holm: float, tests: int) -> Outcome:
    figures: dict[str, Any] = {}
    if found is not None:
        figures = {k: _known(getattr(found, k)) for k in ("difference", "low", "high", "p")}
        figures |= {k: getattr(found, k) for k in ("users", "dropped", "seeds")}
        figures["p_holm"] = None if figures["p"] is None else p_holm
    forbidden = forbidden or (found.why if found else "")
    if forbidden or found is None:
        return Outcome(**{**asdict(test), **figures, "reason": forbidden})
    verdict = "not decided" if p_holm >= LEVEL else "holds" if found.difference > 0 else "fails"
    reason = "; ".join(filter(None, (_said(found, p_holm, tests), beside)))
    return Outcome(**{**asdict(test), **figures, "verdict": verdict, "reason": reason})


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _said(found: Comparison, p_holm: float, tests: int) -> str:
    gone = f" ({found.dropped} not measured in both)" if found.dropped else ""
    many = f", {p_holm:.2g} after Holm's correction for {tests} tests" if tests > 1 else ""
    users = f"{found.users} users{gone} and " if found.users else ""
    return (
        f"{found.difference:+.4f} [{found.low:+.4f}, {found.high:+.4f}] over {users}{found.seeds} seeds,"
        f" p = {found.p:.2g}{many}"
    )


def _together(tests: Sequence[Outcome]) -> tuple[str, str]:
    """A claim holds if all its tests hold, fails if one fails."""
    for verdict in ("fails", "not decided"):
        some = [test for test in tests if test.verdict == verdict]
        if some:
            count = f"{len(some)} of {len(tests)} tests; " if len(tests) > 1 else ""
            return verdict, f"{count}{some[0].metric} in {some[0].column}: {some[0].reason}"
    if not tests:
        return "not decided", "no test"
    return "holds", tests[0].reason if len(tests) == 1 else f"all {len(tests)} tests hold"

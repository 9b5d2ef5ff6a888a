"""Verdicts on claims such as "A beats B on D": holds, fails or not decided, with a reason."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from .comparison import LEVEL, ONE_SEED, Array, Comparison, compare, compare_runs, holm

Cell = Mapping[str, Any]

COUNTS = ("users", "dropped", "seeds")  # of a comparison
WORK = 1.1  # the larger amount of local work over the smaller, at most
Cells = Callable[[str, str], Cell | None]
Users = Callable[[str, str, str], Array | None]


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper as tests: row `better` beats row `worse` in each column and metric.

    A metric may be an extra one of the method ("co-clusters.often") or a mean over the rounds
    ("course.er@5"); `worse` may be a number ("0.5").
    """

    text: str
    better: str
    worse: str
    columns: tuple[str, ...]
    metrics: tuple[str, ...]
    against: str = ""  # the column of `worse`; "" for the same column


@dataclass(frozen=True)
class PairTest:
    """A test in one metric and column; its figures are None if nothing could be compared."""

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
    cell: Cells,
    users: Users,
    known: Mapping[PairTest, Comparison] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Test the claims of a table; return text, verdict, reason and tests of each, as records do.

    Holm's correction is over all tests of the table, also those without figures: a failed run must
    not make the other tests significant. Where one seed is planned there is no test. `cell` returns
    the cell in a row and a column, `users` its figures [S, U]; `known` are earlier comparisons.
    """
    found = [[_measured(t, cell, users, known.get(t)) for t in tests_of(claim)] for claim in claims]

    def counts(test: PairTest) -> bool:
        return not _single(cell(test.better, test.column))

    compared = [one.comparison for one in chain(*found) if counts(one.test)]
    p_values = [1.0 if c is None or math.isnan(c.p) else c.p for c in compared]
    adjusted, many = iter(holm(p_values)), len(p_values)
    out = []
    for claim, tests in zip(claims, found):
        holms = (next(adjusted) if counts(one.test) else math.nan for one in tests)
        judged = [_judged(one, p_holm, many) for one, p_holm in zip(tests, holms)]
        verdict, reason = _together(judged)
        tested = [asdict(test) for test in judged]
        out.append({"text": claim.text, "verdict": verdict, "reason": reason, "tests": tested})
    return out


def tests_of(claim: Claim) -> list[PairTest]:
    return [
        PairTest(claim.better, claim.worse, column, claim.against or column, metric)
        for column in claim.columns
        for metric in claim.metrics
    ]


def is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


class Measured(NamedTuple):
    """A test with its comparison, if there is one."""

    test: PairTest
    comparison: Comparison | None
    forbidden: str = ""  # why there is no verdict
    remark: str = ""  # added to the reason of a verdict


def _measured(test: PairTest, cell: Cells, users: Users, known: Comparison | None) -> Measured:
    asked = sides(test)
    if is_number(test.worse):
        if known:
            return Measured(test, known)
        figures = users(*asked[0], test.metric)
        if figures is None:
            missing = f"runs are missing: {test.better} has no {test.metric} in {test.column}"
            return Measured(test, None, missing)
        number = np.full_like(figures, float(test.worse))
        return Measured(test, _difference(figures, number, test.metric))
    names = _names(test)
    one, two = (cell(*side) for side in asked)
    if one is None or two is None:
        row, column = asked[0 if one is None else 1]
        return Measured(test, None, f"runs are missing: {row} was not run in {column}")
    forbidden = barred(test, one, two)
    if known:
        return Measured(test, known, forbidden, _exempt(one, two, *names))
    a_SU, b_SU = (users(*side, test.metric) for side in asked)
    if a_SU is None or b_SU is None:
        name = names[0 if a_SU is None else 1]
        missing = f"runs are missing: {name} has no {test.metric} of single users"
        single = _single(one) or _single(two)
        return Measured(test, None, forbidden or (ONE_SEED if single else missing))
    if np.shape(a_SU) != np.shape(b_SU):
        shapes = " and ".join(f"{len(x)} seeds of {np.shape(x)[1]} users" for x in (a_SU, b_SU))
        return Measured(test, None, forbidden or f"runs are missing: {shapes} cannot be paired")
    difference = _difference(a_SU, b_SU, test.metric)
    return Measured(test, difference, forbidden, _exempt(one, two, *names))


def sides(test: PairTest) -> list[tuple[str, str]]:
    """Return row and column of the cells that a test compares: two, or one with a number."""
    there = (test.better, test.column)
    return [there] if is_number(test.worse) else [there, (test.worse, test.against)]


def _names(test: PairTest) -> list[str]:
    same = test.better == test.worse
    return [f"{row} in {column}" if same else row for row, column in sides(test)]


def barred(test: PairTest, one: Cell, two: Cell) -> str:
    """Return why a test between two cells can have no verdict, or "" if it can."""
    a, b = _names(test)
    for name, found in ((a, one), (b, two)):
        if found["errors"]:
            failed = ", ".join(str(e["seed"]) for e in found["errors"])
            return f"runs are missing: {name} has none with seed {failed}"
    if list(one["seeds"]) != list(two["seeds"]):
        return f"runs are missing: {a} has seeds {one['seeds']}, {b} {two['seeds']}"
    trials, work = ([cell[key] for cell in (one, two)] for key in ("tuned", "work"))
    if None not in trials and trials[0] != trials[1]:
        return f"tuning budgets differ: {trials[0]} trials for {a}, {trials[1]} for {b}"
    if None not in work and max(work) > WORK * min(work):
        epochs = f"{work[0]:.4g} epochs per client for {a}, {work[1]:.4g} for {b}"
        return f"local work differs: {epochs}"
    return ""


def _difference(a_SU: Array, b_SU: Array, metric: str) -> Comparison:
    return compare_runs(a_SU[:, 0], b_SU[:, 0]) if "." in metric else compare(a_SU, b_SU)


def _single(found: Cell | None) -> bool:
    return found is not None and len(found["seeds"]) + len(found["errors"]) == 1


def _exempt(one: Cell, two: Cell, a: str, b: str) -> str:
    why = {"work": "nothing is trained on devices, so no local work to compare"}
    why["tuned"] = "nothing to tune"
    both = ((a, one), (b, two))
    who = {key: [name for name, found in both if found[key] is None] for key in why}
    return "; ".join(f"{' and '.join(names)}: {why[key]}" for key, names in who.items() if names)


def _judged(measured: Measured, p_holm: float, tests: int) -> PairTest:
    test, found, forbidden, remark = measured
    if found is None:
        return replace(test, reason=forbidden)
    values = {k: getattr(found, k) for k in ("difference", "low", "high", "p")}
    figures: dict[str, Any] = {k: None if math.isnan(v) else v for k, v in values.items()}
    figures |= {k: getattr(found, k) for k in COUNTS}
    figures["p_holm"] = None if figures["p"] is None else p_holm
    if why := forbidden or found.why:
        return replace(test, **figures, reason=why)
    verdict = "not decided" if p_holm >= LEVEL else "holds" if found.difference > 0 else "fails"
    reason = "; ".join(filter(None, (_described(found, p_holm, tests), remark)))
    return replace(test, **figures, verdict=verdict, reason=reason)


def _described(found: Comparison, p_holm: float, tests: int) -> str:
    gone = f" ({found.dropped} not measured in both)" if found.dropped else ""
    many = f", {p_holm:.2g} after Holm's correction for {tests} tests" if tests > 1 else ""
    users = f"{found.users} users{gone} and " if found.users else ""
    interval = f"{found.difference:+.4f} [{found.low:+.4f}, {found.high:+.4f}]"
    return f"{interval} over {users}{found.seeds} seeds, p = {found.p:.2g}{many}"


def _together(tests: Sequence[PairTest]) -> tuple[str, str]:
    """Return verdict and reason: a claim holds if all its tests hold, and fails if one fails."""
    for verdict in ("fails", "not decided"):
        some = [test for test in tests if test.verdict == verdict]
        if some:
            count = f"{len(some)} of {len(tests)} tests; " if len(tests) > 1 else ""
            return verdict, f"{count}{some[0].metric} in {some[0].column}: {some[0].reason}"
    if not tests:
        return "not decided", "no test"
    return "holds", tests[0].reason if len(tests) == 1 else f"all {len(tests)} tests hold"

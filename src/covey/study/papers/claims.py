"""Verdicts on claims of the form "A beats B on D": holds, fails or not decided, each with its reason."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from .comparison import LEVEL, ONE_SEED, Array, Comparison, compare, compare_runs, holm

Cell = Mapping[str, Any]

COUNTS = ("users", "dropped", "seeds")  # of a comparison
WORK = 1.1  # the larger amount of local work over the smaller, at most


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
    the others look better. Where one seed is planned there is no test.
    """
    found = [
        [_measured(test, cell, users, known.get(test)) for test in tests_of(claim)]
        for claim in claims
    ]
    tested = lambda test: not _single(cell(test.better, test.column))
    p_values = [
        1.0 if c is None or math.isnan(c.p) else c.p
        for test, c, _, _ in chain(*found)
        if tested(test)
    ]
    adjusted = iter(holm(p_values))
    out = []
    for claim, tests in zip(claims, found):
        judged = [
            _judged(*m, next(adjusted) if tested(m[0]) else math.nan, len(p_values)) for m in tests
        ]
        verdict, reason = _together(judged)
        out.append(
            {
                "text": claim.text,
                "verdict": verdict,
                "reason": reason,
                "tests": [asdict(test) for test in judged],
            }
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


Measured = tuple[
    Outcome, Comparison | None, str, str
]  # what forbids a verdict, what is to be said beside it


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
            return (
                test,
                None,
                f"runs are missing: {test.better} has no {test.metric} in {test.column}",
                "",
            )
        return (
            test,
            _difference(figures, np.full_like(figures, float(test.worse)), test.metric),
            "",
            "",
        )
    sides = ((test.better, test.column), (test.worse, test.against))
    names = _names(test)
    cells = [cell(*side) for side in sides]
    one, two = cells
    if one is None or two is None:
        row, column = sides[0 if one is None else 1]
        return test, None, f"runs are missing: {row} was not run in {column}", ""
    forbidden = barred(test, one, two)
    if known:
        return test, known, forbidden, _exempt(one, two, *names)
    a_SU, b_SU = (users(*side, test.metric) for side in sides)
    if a_SU is None or b_SU is None:
        name = names[0 if a_SU is None else 1]
        missing = f"runs are missing: {name} has no {test.metric} of single users"
        return test, None, forbidden or (ONE_SEED if _single(one) or _single(two) else missing), ""
    if np.shape(a_SU) != np.shape(b_SU):
        shapes = " and ".join(f"{len(x)} seeds of {np.shape(x)[1]} users" for x in (a_SU, b_SU))
        return test, None, forbidden or f"runs are missing: {shapes} cannot be paired", ""
    return test, _difference(a_SU, b_SU, test.metric), forbidden, _exempt(one, two, *names)


def _names(test: Outcome) -> list[str]:
    sides = ((test.better, test.column), (test.worse, test.against))
    return [row if test.better != test.worse else f"{row} in {column}" for row, column in sides]


def barred(test: Outcome, one: Cell, two: Cell) -> str:
    """Return why a test between two cells has no verdict, whatever it measures; "" where it may have one."""
    names = _names(test)
    return _missing(one, two, *names) or _untuned(one, two, *names) or _unequal(one, two, *names)


def _difference(a_SU: Array, b_SU: Array, metric: str) -> Comparison:
    return compare_runs(a_SU[:, 0], b_SU[:, 0]) if "." in metric else compare(a_SU, b_SU)


def _single(found: Cell | None) -> bool:
    return found is not None and len(found["seeds"]) + len(found["errors"]) == 1


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
    said = (
        [f"{' and '.join(idle)}: nothing is trained on devices, so no local work to compare"]
        if idle
        else []
    )
    said += [f"{' and '.join(fixed)}: nothing to tune"] if fixed else []
    return "; ".join(said)


def _judged(
    test: Outcome, found: Comparison | None, forbidden: str, beside: str, p_holm: float, tests: int
) -> Outcome:
    figures: dict[str, Any] = {}
    if found is not None:
        figures = {k: _known(getattr(found, k)) for k in ("difference", "low", "high", "p")}
        figures |= {k: getattr(found, k) for k in COUNTS}
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

"""What arithmetic rules out in a table of ranking figures, ours or a paper's.

Every bound is a linear inequality that each single user satisfies, so it also holds for every mean
over users, seeds and runs. `docs/reproducing.md` derives them.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

from covey.core.errors import CoveyError
from covey.data.split import SplitConfig
from covey.evaluate.exposure import RATIOS
from covey.evaluate.settings import parse

FLOATING = 1e-6  # tolerance of figures that are not rounded: one user in a million
ONE = "1"  # a constant among the terms
Bound = tuple["Side", "Side"]  # the first is never above the second
Known = Mapping[str, "Side"]  # the figures of one cut-off by name; "count" is k precision


class Side(NamedTuple):
    """One side of an inequality: metrics with their factors, and as text."""

    terms: Mapping[str, float]
    text: str

    def over(self, divisor: float, words: str) -> "Side":
        text = f"({self.text})" if " " in self.text else self.text
        return Side({m: factor / divisor for m, factor in self.terms.items()}, f"{text}/{words}")

    def minus(self, other: "Side") -> "Side":
        negative = {m: -factor for m, factor in other.terms.items()}
        return Side({**self.terms, **negative}, f"{self.text} - {other.text}")

    def value(self, figures: Mapping[str, float]) -> float:
        return sum(factor * (1.0 if m == ONE else figures[m]) for m, factor in self.terms.items())

    def doubt(self, half: float) -> float:
        """Return how much rounding may have changed the value."""
        return sum(0.0 if m == ONE else abs(factor) * half for m, factor in self.terms.items())


def impossible(figures: Mapping[str, float], one_relevant: bool, decimals: int | None) -> list[str]:
    """Return a line for each bound that figures violate, whatever rounding did.

    Figures are by metric, such as {"hit@10": 0.71}; `one_relevant` is whether one item is held out
    for each user, and `decimals` is None if figures are not rounded.
    """
    figures = {metric: value for metric, value in figures.items() if "." not in metric}  # others
    half = FLOATING if decimals is None else 0.5 * 10.0**-decimals
    digits = 4 if decimals is None else decimals
    out = [
        f"{metric} = {value:.{digits}f} is not in [0, 1]"
        for metric, value in figures.items()
        if not -half <= value <= 1 + half
    ]
    for small, large in _bounds(figures, one_relevant):
        least = small.value(figures) - small.doubt(half)
        most = large.value(figures) + large.doubt(half)
        if least > most + 1e-12:  # decimals are not exact in binary
            sides = (f"{s.text} = {s.value(figures):.{digits}f}" for s in (small, large))
            out.append(" is above ".join(sides))
    return list(dict.fromkeys(out))


def _bounds(figures: Mapping[str, float], one_relevant: bool) -> Iterator[Bound]:
    at: dict[int, dict[str, Side]] = {}
    for metric in figures:
        name, k = ("er", int(metric[3:])) if metric in RATIOS else parse(metric)
        at.setdefault(k, {})[name] = Side({metric: 1.0}, metric)
        if name == "precision":
            at[k]["count"] = Side({metric: float(k)}, f"{k} {metric}")
    for k, known in at.items():
        yield from _of_one(k, known, one_relevant)
    for k, l in combinations(sorted(at), 2):
        yield from _of_two(k, l, at[k], at[l], one_relevant)


def _pairs(known: Known, *names: str) -> Iterator[Bound]:
    """Yield the bounds named as in "mrr <= hit" of which both metrics are known."""
    for small, large in (name.split(" <= ") for name in names):
        if small in known and large in known:
            yield known[small], known[large]


def _hits(known: Known) -> Side | None:
    """Return hit, recall or count, which are the same figure with one relevant item."""
    return next((known[name] for name in ("hit", "recall", "count") if name in known), None)


def _of_one(k: int, known: Known, one_relevant: bool) -> Iterator[Bound]:
    log, text = math.log2(k + 1), f"log2({k + 1})"
    below_hit = (f"{name} <= hit" for name in ("mrr", "recall", "precision", "ndcg"))
    yield from _pairs(known, *below_hit, "hit <= count")
    yield from _pairs(known, "recall <= count", "ndcg <= count", "mrr <= count")
    if "hit" in known and "mrr" in known:
        yield known["hit"].over(k, str(k)), known["mrr"]
    if one_relevant:
        yield from _pairs(known, "hit <= recall", "count <= hit", "count <= recall", "mrr <= ndcg")
        hits = _hits(known)
        if hits and "ndcg" in known:
            yield known["ndcg"], hits
            yield hits.over(log, text), known["ndcg"]
        if hits and "mrr" in known:
            yield known["mrr"], hits
            yield hits.over(k, str(k)), known["mrr"]
    elif "ndcg" in known:
        ideal = log * sum(1 / math.log2(r + 1) for r in range(1, k + 1))
        for name, divisor, words in (
            ("recall", log, text),
            *((name, ideal, f"{ideal:.2f}") for name in ("hit", "count")),
        ):
            if name in known:
                yield known[name].over(divisor, words), known["ndcg"]


def _of_two(k: int, l: int, at_k: Known, at_l: Known, one_relevant: bool) -> Iterator[Bound]:
    both = set(at_k) & set(at_l)
    gain = {name: at_l[name].minus(at_k[name]) for name in both}
    for name in sorted(both - {"ndcg", "precision"}):
        yield at_k[name], at_l[name]
    if "count" in both:
        yield gain["count"], Side({ONE: float(l - k)}, f"{l} - {k}")
        for name in sorted({"hit", "recall"} & both):
            yield gain[name], gain["count"]
    if {"hit", "mrr"} <= both:
        yield gain["mrr"], gain["hit"].over(k + 1, str(k + 1))
        yield gain["hit"].over(l, str(l)), gain["mrr"]
    if one_relevant and "ndcg" in both:
        yield at_k["ndcg"], at_l["ndcg"]
        fewer, more = _hits(at_k), _hits(at_l)
        if fewer and more:
            hits = more.minus(fewer)
            yield gain["ndcg"], hits.over(math.log2(k + 2), f"log2({k + 2})")
            yield hits.over(math.log2(l + 1), f"log2({l + 1})"), gain["ndcg"]


def refuse(record: Mapping[str, Any]) -> None:
    """Refuse a table of ours with impossible figures, in single seeds or in their means."""
    for row in record["rows"]:
        for column, cell in row["cells"].items():
            if reasons := _wrong(cell):
                more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
                wrong = f"{row['label']} in {column}, {reasons[0]}{more}"
                why = "the evaluation or a stored run has an error: delete that run and start again"
                refused = "the table is refused because its figures are impossible"
                raise CoveyError(f"{refused}: {wrong}; {why}")


def _wrong(cell: Mapping[str, Any]) -> list[str]:
    one_relevant = cell["config"].get("split", {}).get("kind", SplitConfig.kind) == "loo"
    figures, seeds = cell["figures"], cell["seeds"]
    complete = all(len(seeds) == len(values) for values in figures.values())
    out = []
    for i in range(max(map(len, figures.values()), default=0)):
        name = f"seed {seeds[i]}" if complete else f"run {i + 1}"
        there = {m: values[i] for m, values in figures.items() if i < len(values)}
        run = {metric: value for metric, value in there.items() if value is not None}
        out += [f"{name}: {reason}" for reason in impossible(run, one_relevant, None)]
    out += [f"mean: {reason}" for reason in impossible(cell["mean"], one_relevant, None)]
    for metric, mean in cell["mean"].items():
        known = [value for value in figures.get(metric, ()) if value is not None]
        if not known or not abs(sum(known) / len(known) - mean) <= FLOATING:
            out.append(f"{metric} {mean:.4f} is not the mean of its seeds")
    return out

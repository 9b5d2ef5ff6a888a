"""What arithmetic forbids in a table of ranking figures, ours or a paper's.

Every bound here is a linear inequality that each single user satisfies, so that it survives every mean: over
users, seeds and runs. Ranks count from 1, and a relevant item at rank r gains 1/log2(r+1) in NDCG, 1/r in MRR.

Whatever the number n of a user's relevant items, c_k of them among the first k:
- all figures lie in [0, 1]; hit, recall and MRR rise with the cut-off, as a target's ER does, and so does
  k precision@k = c_k, by at most one for each rank more. NDCG does not: its ideal rises too.
- MRR looks at the first relevant item only: hit/k <= MRR@k <= hit, and what hits gain between two cut-offs
  k < l comes at ranks k+1 to l: MRR gains 1/l to 1/(k+1) of it.
- c_k counts hits: hit <= k precision and precision <= hit. recall = c_k/n with n >= 1: recall <= k precision and
  recall <= hit, and the same for what is gained between two cut-offs. Recall n = precision k holds for a single
  user; means leave only these inequalities, because n may be any number.
- NDCG <= hit, and NDCG >= recall/log2(k+1): c_k relevant items at the last ranks, against the ideal of n. The
  ideal at its largest, of k items, gives NDCG >= k precision/(log2(k+1) ideal_k), for hit as well.
With one relevant item each, recall = hit and precision = hit/k, NDCG is as MRR with its own gains, and
MRR <= NDCG.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

from covey.core.errors import CoveyError
from covey.data.split import SplitConfig
from covey.evaluate.exposure import RATIOS
from covey.evaluate.metrics import parse

FLOATING = 1e-6  # of a figure that is not rounded; one user among a million makes as much
ONE = "1"  # a constant among the terms


class Side(NamedTuple):
    """One side of an inequality: metrics with factors, and how to say it."""

    terms: Mapping[str, float]
    said: str

    def over(self, divisor: float, words: str) -> "Side":
        said = f"({self.said})" if " " in self.said else self.said
        return Side({m: factor / divisor for m, factor in self.terms.items()}, f"{said}/{words}")

    def minus(self, other: "Side") -> "Side":
        return Side(
            {**self.terms, **{m: -factor for m, factor in other.terms.items()}},
            f"{self.said} - {other.said}",
        )

    def value(self, figures: Mapping[str, float]) -> float:
        return sum(factor * (1.0 if m == ONE else figures[m]) for m, factor in self.terms.items())

    def doubt(self, half: float) -> float:
        """How far rounding may have moved it."""
        return sum(0.0 if m == ONE else abs(factor) * half for m, factor in self.terms.items())


Bound = tuple[Side, Side]  # the first is never above the second
Known = Mapping[str, Side]  # the figures of one cut-off by name; "count" is k precision


def impossible(figures: Mapping[str, float], one_relevant: bool, decimals: int | None) -> list[str]:
    """One line for each bound that figures such as {"hit@10": 0.71, "ndcg@10": 0.43} violate.

    Figures are fractions rounded to so many decimals (None: not rounded); what rounding can explain is let
    pass, so each line is certain. `one_relevant`: one item is held out for each user.
    """
    half = FLOATING if decimals is None else 0.5 * 10.0**-decimals
    digits = 4 if decimals is None else decimals
    out = [
        f"{metric} = {value:.{digits}f} is not in [0, 1]"
        for metric, value in figures.items()
        if not -half <= value <= 1 + half
    ]
    for small, large in _bounds(figures, one_relevant):
        least, most = (
            small.value(figures) - small.doubt(half),
            large.value(figures) + large.doubt(half),
        )
        if least > most + 1e-12:  # decimals are not exact in binary
            one, two = (
                f"{side.said} = {side.value(figures):.{digits}f}" for side in (small, large)
            )
            out.append(f"{one} is above {two}")
    return list(dict.fromkeys(out))


def _bounds(figures: Mapping[str, float], one_relevant: bool) -> Iterator[Bound]:
    at: dict[int, dict[str, Side]] = {}
    for metric in figures:
        name, k = ("er", int(metric[3:])) if metric in RATIOS else parse(metric)
        at.setdefault(k, {})[name] = Side({metric: 1.0}, metric)
        if name == "precision":
            at[k]["count"] = Side({metric: float(k)}, f"{k} {metric}")
    for k, known in at.items():
        yield from _any_number(k, known)
        yield from (_only_one if one_relevant else _many)(k, known)
    for k, l in combinations(sorted(at), 2):
        yield from _rise(k, l, at[k], at[l])
        yield from _rise_of_one(k, l, at[k], at[l]) if one_relevant else ()


def _pairs(known: Known, *names: str) -> Iterator[Bound]:
    """Of names such as "mrr <= hit", those that are known."""
    for small, large in (name.split(" <= ") for name in names):
        if small in known and large in known:
            yield known[small], known[large]


def _any_number(k: int, known: Known) -> Iterator[Bound]:
    """Figures of one cut-off against each other, whatever the number of relevant items."""
    yield from _pairs(
        known, "mrr <= hit", "recall <= hit", "precision <= hit", "ndcg <= hit", "hit <= count"
    )
    yield from _pairs(known, "recall <= count", "ndcg <= count", "mrr <= count")
    if "hit" in known and "mrr" in known:
        yield known["hit"].over(k, str(k)), known["mrr"]


def _many(k: int, known: Known) -> Iterator[Bound]:
    """The least NDCG of one cut-off, where the number of relevant items is not known."""
    log, ideal = math.log2(k + 1), sum(1 / math.log2(r + 1) for r in range(1, k + 1))
    if "ndcg" in known and "recall" in known:
        yield known["recall"].over(log, f"log2({k + 1})"), known["ndcg"]
    for name in ("hit", "count"):
        if "ndcg" in known and name in known:
            yield known[name].over(log * ideal, f"{log * ideal:.2f}"), known["ndcg"]


def _hits(known: Known) -> Side | None:
    """With one relevant item, three names of the same figure."""
    return next((known[name] for name in ("hit", "recall", "count") if name in known), None)


def _only_one(k: int, known: Known) -> Iterator[Bound]:
    """Figures of one cut-off against each other, with one relevant item for each user."""
    yield from _pairs(known, "hit <= recall", "count <= hit", "count <= recall", "mrr <= ndcg")
    hits = _hits(known)
    if hits and "ndcg" in known:
        yield known["ndcg"], hits
        yield hits.over(math.log2(k + 1), f"log2({k + 1})"), known["ndcg"]
    if hits and "mrr" in known:
        yield known["mrr"], hits
        yield hits.over(k, str(k)), known["mrr"]


def _rise(k: int, l: int, at_k: Known, at_l: Known) -> Iterator[Bound]:
    """From one cut-off to a larger one, whatever the number of relevant items."""
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


def _rise_of_one(k: int, l: int, at_k: Known, at_l: Known) -> Iterator[Bound]:
    """From one cut-off to a larger one, with one relevant item for each user."""
    if "ndcg" not in at_k or "ndcg" not in at_l:
        return
    yield at_k["ndcg"], at_l["ndcg"]
    fewer, more = _hits(at_k), _hits(at_l)
    if fewer and more:
        gain, hits = at_l["ndcg"].minus(at_k["ndcg"]), more.minus(fewer)
        yield gain, hits.over(math.log2(k + 2), f"log2({k + 2})")
        yield hits.over(math.log2(l + 1), f"log2({l + 1})"), gain


def refuse(record: Mapping[str, Any]) -> None:
    """Refuses a table of ours that arithmetic forbids: seed by seed, in the means, and the means of the seeds."""
    for row in record["rows"]:
        for column, cell in row["cells"].items():
            reasons = _wrong(cell)
            if reasons:
                raise CoveyError(
                    f"the table is refused, its figures cannot be: {row['label']} in {column}, {reasons[0]}"
                    + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else "")
                    + "; an error in the evaluation or in a stored run: delete that run and start again"
                )


def _wrong(cell: Mapping[str, Any]) -> list[str]:
    one_relevant = cell["config"].get("split", {}).get("kind", SplitConfig.kind) == "loo"
    figures, seeds = cell["figures"], cell["seeds"]
    out = []
    for i in range(max(map(len, figures.values()), default=0)):
        name = (
            f"seed {seeds[i]}"
            if all(len(seeds) == len(values) for values in figures.values())
            else f"run {i + 1}"
        )
        run = {
            m: values[i]
            for m, values in figures.items()
            if i < len(values) and values[i] is not None
        }
        out += [f"{name}: {reason}" for reason in impossible(run, one_relevant, None)]
    out += [f"mean: {reason}" for reason in impossible(cell["mean"], one_relevant, None)]
    for metric, mean in cell["mean"].items():
        known = [value for value in figures.get(metric, ()) if value is not None]
        if not known or not abs(sum(known) / len(known) - mean) <= FLOATING:
            out.append(f"{metric} {mean:.4f} is not the mean of its seeds")
    return out

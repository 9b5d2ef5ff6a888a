"""Options of the evaluation; loads no PyTorch."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from covey.core.errors import CoveyError

NAMES = ("recall", "ndcg", "hit", "mrr", "precision")  # of the metrics, which `metrics` defines
CUTOFFS = (5, 10, 20)  # of the exposure of targets
TARGET_NAMES = (*(f"er@{k}" for k in CUTOFFS), "rank")  # which `exposure` defines


def parse(metric: str) -> tuple[str, int]:
    """'recall@20' as ('recall', 20)."""
    match = re.fullmatch(r"([^@]+)@([1-9]\d*)", metric)
    if match is None:
        raise CoveyError(f"metric {metric!r} is not of the form name@cut-off, such as 'recall@20'")
    _one_of("metric", match[1], NAMES)
    return match[1], int(match[2])


def _one_of(what: str, value: str, valid: Sequence[str]) -> None:
    if value not in valid:
        near = difflib.get_close_matches(value.lower(), valid, 1, 0.5)
        names = ", ".join(map(repr, valid))
        hint = f"did you mean {near[0]!r}?" if near else f"it is one of {names}"
        raise CoveyError(f"unknown {what} {value!r}; {hint}")


@dataclass(frozen=True)
class EvaluateConfig:
    """How held-out items are ranked, what is measured, how often, and what selects the round."""

    candidates: str = "full"  # full: all items; sampled: the held-out one and some unseen ones
    seen: str = "filtered"  # filtered: items that the client has are no candidates; kept: they are
    history: str = "known"  # what a device scores from in the test; train: without validation items
    metrics: tuple[str, ...] = ("recall@20", "ndcg@20")
    every: int = 1  # rounds or passes between evaluations
    unit: str = "round"  # what `every` counts: round, or pass over all clients
    clients: int = 0  # how many clients are evaluated, the same ones each time; 0: all of them
    select: str = ""  # the metric that selects the round, on validation; '' for the first
    targets: tuple[int, ...] = ()  # rows whose exposure is measured; (): those an attack promotes

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", tuple(self.metrics))
        object.__setattr__(self, "targets", tuple(self.targets))
        _one_of("evaluate.candidates", self.candidates, ("full", "sampled"))
        _one_of("evaluate.seen", self.seen, ("filtered", "kept"))
        _one_of("evaluate.history", self.history, ("known", "train"))
        _one_of("evaluate.unit", self.unit, ("round", "pass"))
        if not self.metrics:
            raise CoveyError("evaluate.metrics is empty; name one at least, such as 'recall@20'")
        for metric in self.metrics:
            parse(metric)
        if self.select:
            _one_of("evaluate.select", self.select, self.metrics)
        if self.every < 1:
            raise CoveyError(f"evaluate.every is {self.every}; it is a number of rounds, 1 or more")
        if self.clients < 0:
            valid = "it is a number of clients, 0 for all of them"
            raise CoveyError(f"evaluate.clients is {self.clients}; {valid}")

    @property
    def selector(self) -> str:
        """The metric that selects the round."""
        return self.select or self.metrics[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Metrics without cut-offs, each once."""
        return tuple(dict.fromkeys(parse(m)[0] for m in self.metrics))

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Cut-offs of all metrics, ascending."""
        return tuple(sorted({parse(m)[1] for m in self.metrics}))

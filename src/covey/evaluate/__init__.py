"""Evaluation: ranks held-out items and computes metrics, for federated and pooled models alike."""

from .metrics import EvaluateConfig, measure, per_client, summarise, with_held
from .ranking import (
    Top,
    distinct,
    keep_heap,
    merged,
    nothing,
    ranks_full,
    ranks_of,
    ranks_sampled,
    span,
    top_of,
)

__all__ = [
    "EvaluateConfig",
    "Top",
    "distinct",
    "keep_heap",
    "measure",
    "merged",
    "nothing",
    "per_client",
    "ranks_full",
    "ranks_of",
    "ranks_sampled",
    "span",
    "summarise",
    "top_of",
    "with_held",
]

"""Evaluation: ranks held-out items and computes metrics, for federated and pooled models alike."""

from .metrics import EvaluateConfig, measure, per_client, summarise
from .ranking import ranks_full, ranks_of, ranks_sampled, top_of

__all__ = [
    "EvaluateConfig",
    "measure",
    "per_client",
    "ranks_full",
    "ranks_of",
    "ranks_sampled",
    "summarise",
    "top_of",
]

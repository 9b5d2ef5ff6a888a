"""Evaluation: ranks held-out items and computes metrics, for federated and pooled models alike."""

from .metrics import EvaluateConfig as EvaluateConfig

"""Covey: federated recommendation, and what it costs in accuracy, privacy, traffic and under attack."""

__version__ = "0.1.0"

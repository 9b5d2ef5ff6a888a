"""Covey: federated recommendation, and what it costs in accuracy, privacy, traffic and under attack."""

import os
from importlib import import_module
from typing import Any

os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")  # matrix products with the same bits wherever they stand in memory

__version__ = "0.1.0"
__all__ = ["CoveyError", "Dataset", "Recommender", "__version__", "fit", "load"]

_HOME = {
    "CoveyError": "core",
    "Dataset": "data",
    "Recommender": "inference.api",
    "fit": "inference.api",
    "load": "inference.api",
}


def __getattr__(name: str) -> Any:
    """Loaded when first asked for: `import covey` itself brings no torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'covey' has no attribute {name!r}")
    return getattr(import_module(f"covey.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Datasets: loading, filtering and splitting; the function that splits is `data.split.split`.

The names are loaded on first use, so that datasets can be listed without NumPy and PyTorch.
"""

from typing import TYPE_CHECKING

from covey.core.lazy import lazy

if TYPE_CHECKING:
    from .dataset import Dataset, check
    from .folder import apply_filter, load
    from .settings import DEFAULT_FILTERS, Filter, SplitConfig
    from .split import Split, candidates, pool
    from .synthetic import Synthetic, generate

__all__ = ["DEFAULT_FILTERS", "Dataset", "Filter", "Split", "SplitConfig", "Synthetic"]
__all__ += ["apply_filter", "candidates", "check", "generate", "load", "pool"]
__getattr__, __dir__ = lazy(__name__)

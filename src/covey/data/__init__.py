"""Datasets: loading, filtering and splitting; the function that splits is `data.split.split`.

The names are loaded on first use, so that datasets can be listed without NumPy and PyTorch.
"""

from typing import TYPE_CHECKING

from covey.core.lazy import lazy

if TYPE_CHECKING:
    from .dataset import Dataset as Dataset
    from .dataset import check as check
    from .folder import apply_filter as apply_filter
    from .folder import load as load
    from .settings import DEFAULT_FILTERS as DEFAULT_FILTERS
    from .settings import Filter as Filter
    from .settings import SplitConfig as SplitConfig
    from .split import Split as Split
    from .split import candidates as candidates
    from .split import pool as pool
    from .synthetic import Synthetic as Synthetic
    from .synthetic import generate as generate

__getattr__, __dir__ = lazy(__name__)

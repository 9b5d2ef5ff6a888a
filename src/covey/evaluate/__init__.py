"""Evaluation: ranks held-out items and computes metrics, for federated and pooled models alike."""

from typing import TYPE_CHECKING

from covey.core.lazy import lazy

if TYPE_CHECKING:
    from .metrics import measure as measure
    from .metrics import per_client as per_client
    from .metrics import summarise as summarise
    from .ranking import ranks_full as ranks_full
    from .ranking import ranks_of as ranks_of
    from .ranking import ranks_sampled as ranks_sampled
    from .ranking import top_of as top_of
    from .settings import EvaluateConfig as EvaluateConfig

__getattr__, __dir__ = lazy(__name__)

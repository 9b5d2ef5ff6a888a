"""Foundations that every other package may import: records, random streams, checks and files.

The names below can be imported from here. They are loaded on first use, so that the command line
can import `CoveyError` without loading torch.
"""

from typing import TYPE_CHECKING

from .lazy import lazy

if TYPE_CHECKING:
    from .checks import among_choices, positive, share
    from .errors import CoveyError
    from .fixed_point import Scales
    from .messages import Answers, Catalogue, Download, Extra, Round, Sent, Total, Upload, stack
    from .ragged import Drawer, Field, FieldDict, Fields, Ragged, Rows, below, cat, offsets_of, take
    from .rng import Rng

__all__ = ["Answers", "Catalogue", "CoveyError", "Download", "Drawer", "Extra", "Field", "Fields"]
__all__ += ["FieldDict", "Ragged", "Rng", "Round", "Rows", "Scales", "Sent", "Total", "Upload"]
__all__ += ["among_choices", "below", "cat", "offsets_of", "positive", "share", "stack", "take"]
__getattr__, __dir__ = lazy(__name__)

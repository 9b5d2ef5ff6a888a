"""Foundations that every other package may import: records, random streams, checks and files.

The names below can be imported from here. They are loaded on first use, so that the command line
can import `covey.core.errors` without loading torch.
"""

from typing import TYPE_CHECKING

from .lazy import lazy

if TYPE_CHECKING:
    from .checks import among_choices as among_choices
    from .checks import positive as positive
    from .checks import share as share
    from .errors import CoveyError as CoveyError
    from .messages import Catalogue as Catalogue
    from .messages import Download as Download
    from .messages import Round as Round
    from .messages import Sent as Sent
    from .messages import Total as Total
    from .messages import Upload as Upload
    from .messages import stack as stack
    from .ragged import Drawer as Drawer
    from .ragged import Field as Field
    from .ragged import FieldDict as FieldDict
    from .ragged import Fields as Fields
    from .ragged import Ragged as Ragged
    from .ragged import Rows as Rows
    from .ragged import cat as cat
    from .ragged import offsets_of as offsets_of
    from .ragged import take as take
    from .rng import Rng as Rng

__getattr__, __dir__ = lazy(__name__)

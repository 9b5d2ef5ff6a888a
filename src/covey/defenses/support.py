"""Minimum support: an item that too few clients touched in a round is not updated.

No rule that compares uploads can judge a row that only an attacker sent. Cold items get few honest
rows, as they are touched only as sampled negatives, so they are the easiest targets.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.core import Field, FieldDict, Ragged, Rows, Upload, offsets_of, positive
from covey.mechanism import Mechanism, ServerView


@dataclass(frozen=True)
class MinimumSupport(Mechanism):
    """Leaves out the rows of items that fewer than `clients` uploads of the round contain."""

    clients: int = 3
    name: str = "minimum support"

    def __post_init__(self) -> None:
        positive(self.name, clients=self.clients)

    def filter_uploads(self, view: ServerView, upload: Upload) -> Upload:
        update: FieldDict = {name: self._one(value) for name, value in upload.update.items()}
        return replace(upload, update=update)

    def _one(self, value: Field) -> Field:
        if not isinstance(value, Rows):
            return value
        count_I = torch.bincount(value.items.values, minlength=value.height)
        return kept_rows(value, count_I[value.items.values] >= self.clients)


def kept_rows(rows: Rows, keep_T: Tensor) -> Rows:
    """The rows of each client where `keep_T` is true."""
    lengths = torch.bincount(rows.items.owner[keep_T], minlength=len(rows))
    items = Ragged(rows.items.values[keep_T], offsets_of(lengths))
    return Rows(items, rows.values[keep_T], rows.height)

"""Minimum support: an item that too few clients touched in a round does not move.

No rule that compares uploads can judge a row that only an attacker sent. Cold items get few honest
rows (they are touched as sampled negatives alone), so they are the easiest targets.
"""

from dataclasses import dataclass, replace

import torch

from covey.contract.mechanism import Mechanism
from covey.contract.views import ServerView
from covey.core.checks import positive
from covey.core.messages import Upload
from covey.core.ragged import Field, FieldDict, Ragged, Rows, offsets_of


@dataclass(frozen=True)
class MinimumSupport(Mechanism):
    """Leaves out the rows of items that fewer than `clients` uploads of the round hold."""

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
        keep_T = count_I[value.items.values] >= self.clients
        lengths = torch.zeros_like(value.items.lengths).index_add_(
            0, value.items.owner, keep_T.long()
        )
        return Rows(
            Ragged(value.items.values[keep_T], offsets_of(lengths)),
            value.values[keep_T],
            value.height,
        )

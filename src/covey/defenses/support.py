"""Minimum support: an item that too few clients touched in a round is not updated.

No rule that compares uploads can judge a row that only an attacker sent. Cold items get few honest
rows, as they are touched only as sampled negatives, so they are the easiest targets.
"""

from dataclasses import dataclass, replace

import torch

from covey.core import Rows, Upload, positive
from covey.mechanism import Mechanism, ServerView


@dataclass(frozen=True)
class MinimumSupport(Mechanism):
    """Leaves out the rows of items that fewer than `clients` uploads of the round contain."""

    clients: int = 3
    name: str = "minimum support"

    def __post_init__(self) -> None:
        positive(self.name, clients=self.clients)

    def filter_uploads(self, view: ServerView, upload: Upload) -> Upload:
        update = dict(upload.update)
        for name, value in update.items():
            if isinstance(value, Rows):
                count_I = torch.bincount(value.items.values, minlength=value.height)
                update[name] = value.kept(count_I[value.items.values] >= self.clients)
        return replace(upload, update=update)

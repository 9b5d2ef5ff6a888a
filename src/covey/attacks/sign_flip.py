"""Sign flip: the honest update of a made-up list with its sign changed; it has no target."""

from dataclasses import dataclass

from covey.contract.attack import AttackView
from covey.core import FieldDict, Upload

from .profiles import RandomList, scaled_upload


@dataclass(frozen=True)
class SignFlip(RandomList):
    """Trains on random items, which stay the same, and uploads -`scale` times the update."""

    scale: float = 1.0
    items: int = 30  # length of the random list
    name: str = "sign flip"

    def craft(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        return {}, scaled_upload(upload, -self.scale)

"""Sign flip: untargeted, the honest update of a made-up list the wrong way round."""

from dataclasses import dataclass

from covey.contract.attack import AttackView
from covey.core.messages import Upload
from covey.core.ragged import FieldDict

from .profiles import RandomList, times


@dataclass(frozen=True)
class SignFlip(RandomList):
    """Trains on random items, which it keeps for good, and uploads -`scale` times the update."""

    scale: float = 1.0
    items: int = 30
    name: str = "sign flip"
    knowledge: str = ""

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        return {}, times(upload, -self.scale) if view.step == "train" else upload

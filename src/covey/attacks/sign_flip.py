"""Sign flip: untargeted, the honest update of a made-up list the wrong way round."""

from dataclasses import dataclass

import torch

from covey.contract.attack import AttackView
from covey.contract.views import TrainingData
from covey.core.checks import positive
from covey.core.messages import Upload
from covey.core.ragged import Drawer

from .profiles import listed, some_items, times


@dataclass(frozen=True)
class SignFlip:
    """Trains on random items, which it keeps for good, and uploads -`scale` times the update."""

    scale: float = 1.0
    items: int = 30
    name: str = "sign flip"
    knowledge: str = ""

    def __post_init__(self) -> None:
        positive(self.name, items=self.items)

    def profile(self, view: AttackView) -> TrainingData:
        none = torch.zeros(0, dtype=torch.long, device=view.ids_C.device)
        return listed(some_items(view.rng.home("profile"), view.catalogue.n_items, self.items, none))

    def poison(self, view: AttackView, upload: Upload) -> tuple[Drawer, Upload]:
        return {}, times(upload, -self.scale) if view.step == "train" else upload

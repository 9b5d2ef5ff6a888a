"""Gaussian noise: untargeted, numbers without meaning where an honest update would stand."""

from dataclasses import dataclass, replace

from torch import Tensor

from covey.contract.attack import AttackView
from covey.core.messages import Upload
from covey.core.ragged import Field, FieldDict, Rows

from .profiles import RandomList


@dataclass(frozen=True)
class GaussianNoise(RandomList):
    """As many rows as a client with random items has, and the layers: all N(0, `scale`^2)."""

    scale: float = 0.1
    items: int = 30
    name: str = "gaussian noise"
    knowledge: str = ""

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        if view.step != "train":
            return {}, upload
        return {}, replace(
            upload, update={k: self._noise(view, k, v) for k, v in upload.update.items()}
        )

    def _noise(self, view: AttackView, name: str, value: Field) -> Field:
        rng = view.rng.fold(name)
        if isinstance(value, Rows):
            most, shape = int(value.items.lengths.max()), value.values.shape[1:]
            noise_CR = rng.normal(most, *shape, dtype=value.values.dtype)
            return replace(
                value, values=self.scale * noise_CR[value.items.owner, value.items.place]
            )
        assert isinstance(value, Tensor)
        return self.scale * rng.normal(*value.shape[1:], dtype=value.dtype)

"""Gaussian noise in place of an honest update; the attack has no target."""

from dataclasses import dataclass, replace

from torch import Tensor

from covey.contract.attack import AttackView
from covey.core import Field, FieldDict, Rows, Upload

from .profiles import RandomList


@dataclass(frozen=True)
class GaussianNoise(RandomList):
    """As many rows as a client with random items has, and the layers: all N(0, `scale`^2)."""

    scale: float = 0.1
    items: int = 30  # length of the random list
    name: str = "gaussian noise"

    def craft(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        update = {k: self._noise(view, k, v) for k, v in upload.update.items()}
        return {}, replace(upload, update=update)

    def _noise(self, view: AttackView, name: str, value: Field) -> Field:
        rng = view.rng.fold(name)
        if isinstance(value, Rows):
            most, shape = int(value.items.lengths.max()), value.values.shape[1:]
            noise_CR = rng.normal(most, *shape, dtype=value.values.dtype)
            noise_T = noise_CR[value.items.owner, value.items.place]
            return replace(value, values=self.scale * noise_T)
        assert isinstance(value, Tensor)
        return self.scale * rng.normal(*value.shape[1:], dtype=value.dtype)

"""Clipping by the server: no uploaded row counts for more than a bound (norm clipping, Sun et al., 2019)."""

from dataclasses import dataclass, replace

from torch import Tensor

from ..core import CoveyError, Drawer, Field, Rows, Upload
from ..mechanism import Mechanism, ServerView


@dataclass(frozen=True)
class ClipRows(Mechanism):
    """Scales each row of every uploaded update and model to a norm of at most `bound`.

    A row is an item's vector, or the last dimension of a dense parameter.
    """

    bound: float = 1.0
    name: str = "clip rows"

    def __post_init__(self) -> None:
        if not self.bound > 0:
            raise CoveyError(f"clip rows: bound = {self.bound}; a norm over 0 is needed")

    def filter(self, view: ServerView, upload: Upload) -> Upload:
        return replace(upload, update=self._each(upload.update), model=self._each(upload.model))

    def _each(self, drawer: Drawer) -> Drawer:
        return {name: self._one(value) for name, value in drawer.items()}

    def _one(self, value: Field) -> Field:
        if isinstance(value, Rows):
            return replace(value, values=self._clip(value.values))
        assert isinstance(value, Tensor)
        return self._clip(value)

    def _clip(self, x: Tensor) -> Tensor:
        norm = x.norm(dim=-1, keepdim=True)
        return x * (self.bound / norm.clamp(min=self.bound))

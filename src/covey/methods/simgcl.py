"""SimGCL as a federated baseline (Yu et al., Are Graph Augmentations Necessary?, SIGIR 2022).

A client has no graph to convolve over, so noise is added once, to the item rows themselves. It has
a single user, who cannot be contrasted with others, so only items are contrasted.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from covey.core import CoveyError, Fields, positive
from covey.mechanism import ClientView, Mechanism

from . import views as contrast
from .views import Reduction, Which, noise


@dataclass(frozen=True)
class NoiseContrast(Mechanism):
    """Contrasts two noisy views of each of a client's items with those of the other items."""

    weight: float = 0.5  # lambda
    eps: float = 0.1  # length of the noise
    eps_relative: bool = False  # whether it is times the length of the row
    tau: float = 0.2
    items: Which = "all"  # items of a client's examples, or of its positives only
    reduction: Reduction = "mean"
    views: Literal["once", "each step"] = "once"  # drawn per participation, or in every local step
    name: str = "noise contrast"

    def __post_init__(self) -> None:
        positive(self.name, tau=self.tau)
        if self.weight < 0 or self.eps < 0:
            raise CoveyError(f"{self.name}: weight and eps may not be negative")

    def prepare(self, view: ClientView) -> Fields:
        made = contrast.compared(view, self.items)
        return made | self._views(view, made) if self.views == "once" else made

    def _views(self, view: ClientView, ready: Fields) -> Fields:
        v_CRD, made = view.params["items"].detach(), {}
        for name in ("one", "two"):
            rng = view.rng.fold(name)
            if self.items == "all":
                made[name] = noise(v_CRD, self.eps, rng, self.eps_relative)
            for pack in contrast.packs(ready):
                v_CPD, rngs = pack.of(v_CRD), rng.take(pack.owner())
                made[f"{pack.key}/{name}"] = noise(v_CPD, self.eps, rngs, self.eps_relative)
        return made

    def loss(self, view: ClientView) -> Tensor | None:
        if not self.weight:
            return None
        ready = view.prepared
        ready = ready if self.views == "once" else ready | self._views(view, ready)
        options = (("one", "two"), self.tau, self.reduction)
        return self.weight * contrast.row_loss(view.params["items"], ready, *options)

    def extra_floats(self, n_rows: int) -> int:
        return contrast.held_similarities(n_rows) if self.weight else 0

    def compared_pairs(self, n_rows: int) -> int:
        return n_rows**2 if self.weight else 0

"""SimGCL as a federated baseline (Yu et al., Are Graph Augmentations Necessary?, SIGIR 2022).

A client has no graph to convolve over, so noise is added once, to the item rows themselves. It has
a single user, who cannot be contrasted with others, so only items are contrasted.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from covey.contract.mechanism import Mechanism
from covey.contract.views import ClientView
from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.core.ragged import Fields

from .views import (
    Reduction,
    Which,
    contrasted_rows,
    held_similarities,
    item_loss,
    noise,
    pack_rows,
    packed_item_loss,
    packs,
)


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
        assert view.batch is not None
        rows_CR = contrasted_rows(view.batch, self.items)
        made = pack_rows(rows_CR) if self.items == "positives" else {"rows": rows_CR}
        return made | self._views(view, made) if self.views == "once" else made

    def _views(self, view: ClientView, ready: Fields) -> Fields:
        v_CRD, made = view.params["items"].detach(), {}
        for name in ("one", "two"):
            rng = view.rng.fold(name)
            if self.items == "all":
                made[name] = noise(v_CRD, self.eps, rng, self.eps_relative)
            for pack in packs(ready):
                v_CPD, rngs = pack.of(v_CRD), rng.take(pack.owner())
                made[f"{pack.key}/{name}"] = noise(v_CPD, self.eps, rngs, self.eps_relative)
        return made

    def loss(self, view: ClientView) -> Tensor | None:
        if not self.weight:
            return None
        ready = view.prepared
        ready = ready if self.views == "once" else ready | self._views(view, ready)
        v_CRD = view.params["items"]
        if self.items == "positives":
            return self.weight * packed_item_loss(v_CRD, ready, self.tau, self.reduction)
        one_CRD, two_CRD = v_CRD + ready["one"], v_CRD + ready["two"]
        return self.weight * item_loss(one_CRD, two_CRD, ready["rows"], self.tau, self.reduction)

    def extra_floats(self, n_rows: int) -> int:
        return held_similarities(n_rows) if self.weight else 0

    def compared_pairs(self, n_rows: int) -> int:
        return n_rows**2 if self.weight else 0

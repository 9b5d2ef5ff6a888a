"""SimGCL as a federated baseline (Yu et al., Are Graph Augmentations Necessary?, SIGIR 2022).

A client has no graph to convolve over, so the noise is added once, to the item rows as they are. It has one
user, which alone has nothing to be contrasted with, so only items are.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ..core import CoveyError, Fields, positive
from ..mechanism import ClientView, Mechanism
from .views import Reduction, Which, contrasted_rows, few_items_loss, item_loss, noise, tile_rows


@dataclass(frozen=True)
class NoiseContrast(Mechanism):
    weight: float = 0.5  # lambda
    eps: float = 0.1  # length of the noise
    eps_relative: bool = False  # in lengths of the row
    tau: float = 0.2
    items: Which = "all"  # of a client's examples: all distinct ones, or the positives
    reduction: Reduction = "mean"
    views: Literal["once", "each step"] = "once"  # drawn per participation, or in every local step
    name: str = "noise contrast"

    def __post_init__(self) -> None:
        positive(self.name, tau=self.tau)
        if self.weight < 0 or self.eps < 0:
            raise CoveyError(f"{self.name}: weight and eps may not be negative")

    def prepare(self, view: ClientView) -> Fields:
        assert view.batch is not None
        made = {"rows": contrasted_rows(view.batch, self.items)}
        return made | self._views(view) if self.views == "once" else made

    def _views(self, view: ClientView) -> Fields:
        v_CRD = view.params["items"].detach()
        return {name: noise(v_CRD, self.eps, view.rng.fold(name), self.eps_relative) for name in ("one", "two")}

    def loss(self, view: ClientView) -> Tensor | None:
        if not self.weight:
            return None
        ready = view.prepared if self.views == "once" else view.prepared | self._views(view)
        v_CRD, one_CRD, two_CRD, rows_CR = view.params["items"], ready["one"], ready["two"], ready["rows"]
        if self.items == "positives":
            return self.weight * few_items_loss(v_CRD, one_CRD, two_CRD, rows_CR, self.tau, self.reduction)
        return self.weight * item_loss(v_CRD + one_CRD, v_CRD + two_CRD, rows_CR, self.tau, self.reduction)

    def floats(self, n_rows: int) -> int:
        return tile_rows(n_rows) * n_rows if self.weight else 0

"""Linear combines: they need only sums, so they fold over chunks and under secure aggregation."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..core import Fields, Total, Upload
from ..mechanism import Combine, Sees
from .fold import total_of


@dataclass(frozen=True)
class Sum(Combine):
    sees: Sees = "total"

    def combine(self, upload: Upload | Total, names: Sequence[str]) -> tuple[Fields, Fields]:
        total = total_of(upload)
        model = {k: v / total.weight.to(v) for k, v in total.model.items() if k in names}
        return {k: v for k, v in total.update.items() if k in names}, model


@dataclass(frozen=True)
class Mean(Combine):
    """FedAvg: the weighted mean over everybody who answered."""

    sees: Sees = "total"

    def combine(self, upload: Upload | Total, names: Sequence[str]) -> tuple[Fields, Fields]:
        total = total_of(upload)
        mean = lambda part: {k: v / total.weight.to(v) for k, v in part.items() if k in names}
        return mean(total.update), mean(total.model)


@dataclass(frozen=True)
class ItemMean(Combine):
    """Each item row over the clients that touched it, everything else over everybody (FedNCF).

    Plain FedAvg divides by all participants and so shrinks every row by its touch rate.
    """

    sees: Sees = "total"

    def combine(self, upload: Upload | Total, names: Sequence[str]) -> tuple[Fields, Fields]:
        total = total_of(upload)
        update, model = Mean().combine(total, names)
        for name, weight_I in total.touched.items():
            if name in update:
                shape = (-1, *[1] * (update[name].dim() - 1))
                some_I = weight_I.clamp(min=1e-12).view(shape)  # a row nobody touched has sum 0
                update[name] = total.update[name] / some_I.to(update[name])
        return update, model

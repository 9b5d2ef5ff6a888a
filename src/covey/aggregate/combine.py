"""Linear combines: they need only sums, so they fold over chunks and under secure aggregation."""

from collections.abc import Sequence
from dataclasses import dataclass

from covey.contract.aggregation import Combine
from covey.contract.views import Reads
from covey.core.messages import Total, Upload
from covey.core.ragged import Fields

from .fold import total_of


@dataclass(frozen=True)
class Sum(Combine):
    reads_uploads: Reads = "total"

    def combine(self, upload: Upload | Total, names: Sequence[str]) -> tuple[Fields, Fields]:
        total = total_of(upload)
        model = {k: v / total.weight.to(v) for k, v in total.model.items() if k in names}
        return {k: v for k, v in total.update.items() if k in names}, model


@dataclass(frozen=True)
class Mean(Combine):
    """FedAvg: the weighted mean over everybody who answered."""

    reads_uploads: Reads = "total"

    def combine(self, upload: Upload | Total, names: Sequence[str]) -> tuple[Fields, Fields]:
        total = total_of(upload)
        mean = lambda part: {k: v / total.weight.to(v) for k, v in part.items() if k in names}
        return mean(total.update), mean(total.model)


@dataclass(frozen=True)
class ItemMean(Combine):
    """Each item row over the clients that touched it, everything else over everybody (FedNCF).

    Plain FedAvg divides by all participants and so shrinks every row by its touch rate.
    """

    reads_uploads: Reads = "total"

    def combine(self, upload: Upload | Total, names: Sequence[str]) -> tuple[Fields, Fields]:
        total = total_of(upload)
        tables = [k for k in total.touched if k in names and k in total.update]
        update, model = Mean().combine(total, [k for k in names if k not in tables])
        for name in tables:
            sum_I = total.update[name]
            some_I = total.touched[name].clamp(min=1e-12)  # a row nobody touched has sum 0
            update[name] = sum_I / some_I.view(-1, *[1] * (sum_I.dim() - 1)).to(sum_I)
        return update, model

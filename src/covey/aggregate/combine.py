"""Sums and averages of uploads. They need only the total, so they work under secure aggregation."""

from collections.abc import Sequence
from dataclasses import dataclass

from covey.core import Answers, Fields, Total
from covey.mechanism import Combine

from .fold import total_of


@dataclass(frozen=True)
class Sum(Combine):
    """The weighted sum of the updates; uploaded models are averaged."""

    def combine(self, upload: Answers, names: Sequence[str]) -> tuple[Fields, Fields]:
        total = total_of(upload)
        update = {k: v for k, v in total.update.items() if k in names}
        return update, _average(total, total.model, names)


@dataclass(frozen=True)
class Mean(Combine):
    """FedAvg: the weighted average over all clients that answered."""

    def combine(self, upload: Answers, names: Sequence[str]) -> tuple[Fields, Fields]:
        total = total_of(upload)
        return _average(total, total.update, names), _average(total, total.model, names)


@dataclass(frozen=True)
class ItemMean(Combine):
    """Averages each item row over the clients that touched it, all else over all clients (FedNCF).

    FedAvg divides by the number of participants, so a row that few of them touch hardly moves.
    """

    def combine(self, upload: Answers, names: Sequence[str]) -> tuple[Fields, Fields]:
        total = total_of(upload)
        tables = [k for k in total.touched if k in names and k in total.update]
        update, model = Mean().combine(total, [k for k in names if k not in tables])
        for name in tables:
            sum_I = total.update[name]
            weight_I = total.touched[name].clamp(min=1e-12)  # an untouched row has sum 0
            update[name] = sum_I / weight_I.view(-1, *[1] * (sum_I.dim() - 1)).to(sum_I)
        return update, model


def _average(total: Total, sums: Fields, names: Sequence[str]) -> Fields:
    return {k: v / total.weight.to(v) for k, v in sums.items() if k in names}

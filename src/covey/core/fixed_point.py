"""Numbers as integers of a fixed unit: their sums have the same bits in every order.

A sum of floating-point numbers depends on the order in which they are added, so it would change
with the number of processes. Each number is therefore rounded to a multiple of 2^-fraction before
it is added. The fraction follows from the largest number that a client may send and from the number
of clients, so that no sum overflows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, log2
from typing import TYPE_CHECKING

from .errors import CoveyError

if TYPE_CHECKING:  # loaded by commands that end before PyTorch is needed
    import torch
    from torch import Tensor

ARITHMETIC = 2  # version of the arithmetic of sums; 1 added floating-point numbers
BITS = 62  # of a sum, without its sign
COARSEST = 12  # bits after the point; with fewer, small updates would be rounded away
PARAMETER = 2.0**12  # the largest number in an update or a model
REPORT = 2.0**20  # the largest number in a report that declares no range
WEIGHT = 2.0**16  # the largest weight of a client that is weighted by its examples


def fraction_of(largest: float, many: int, bits: int = BITS) -> int:
    """Returns how many bits after the point sums of `many` numbers up to `largest` leave."""
    return bits - ceil(log2(min(largest, 1e300) * max(many, 1)))


def encode(x: "Tensor", fraction: int) -> "Tensor":
    """Returns the nearest multiples of 2^-fraction, in this unit, int64."""
    wide = x.double()
    wide = wide.clone() if wide is x else wide
    return wide.mul_(2.0**fraction).round_().long()


def decode(total: "Tensor", fraction: int, dtype: "torch.dtype") -> "Tensor":
    """Returns the numbers that a sum of encoded numbers stands for."""
    return total.double().mul_(2.0**-fraction).to(dtype)


@dataclass(frozen=True)
class Scales:
    """The ranges of the fields of one exchange, and how many clients may be added up."""

    many: int  # the number of clients that are asked
    # By the path of a field in an upload, such as "update/items", the largest absolute value of a
    # number. Fields that are not named have `REPORT`.
    largest: Mapping[str, float] = field(default_factory=dict)

    def range_of(self, path: str) -> float:
        """Returns the largest number that a client may send in a field."""
        return self.largest.get(path, 1.0 if path == "weight" else REPORT)

    def fraction(self, path: str) -> int:
        """Returns the bits after the point in sums of a field; updates are weighted by clients."""
        weighted = path.startswith(("update/", "model/"))
        weight = self.range_of("weight") if weighted else 1.0
        return fraction_of(self.range_of(path) * weight, self.many)

    def check(self) -> None:
        """Refuses ranges that leave too few bits for this many clients."""
        for path in self.largest:
            if (left := self.fraction(path)) < COARSEST:
                where = f"after the point in a sum over {self.many:,} clients"
                wrong = f"a range of {self.range_of(path):g} leaves {left} bits {where}"
                less = "declare a smaller Disclosure.largest, or ask fewer clients (run.cohort)"
                raise CoveyError(f"{path}: {wrong}, and {COARSEST} are needed; {less}")

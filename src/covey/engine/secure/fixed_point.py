"""Numbers as integers modulo 2^bits in the unit of all sums: sums are exact and masks cancel."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from covey.core.errors import CoveyError
from covey.core.fixed_point import decode, encode, fraction_of

from .settings import SumFailed

Integers = NDArray[np.unsignedinteger[Any]]
Floats = NDArray[np.float64]

SPARE = 4  # high bits that no honest total reaches: a total with a mask left in it shows there
COARSEST = 16  # bits after the point; with fewer, small updates would be rounded away


class OutOfRange(ValueError):
    """A contribution that does not fit; its client sends nothing."""


@dataclass(frozen=True)
class Fixed:
    """A format for sums of `n` numbers of at most `range`, whose unit leaves `SPARE` bits over."""

    bits: Literal[32, 64]
    range: float
    n: int

    @property
    def fraction(self) -> int:
        return fraction_of(self.range, self.n, self.bits - 1 - SPARE)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"<u{self.bits // 8}")

    def check(self) -> None:
        if self.fraction < COARSEST:
            left = f"{self.fraction} bits after the point"
            what = f"numbers up to {self.range:g} from {self.n} clients"
            wrong = f"fleet.bits = {self.bits} leaves {left} for {what}"
            raise CoveyError(f"{wrong}; lower fleet.range, or set fleet.bits = 64")

    def encode(self, x: Floats) -> Integers:
        """Integers, rounded to the nearest unit. Refuses numbers out of range, and NaN."""
        if len(x) and not float(np.abs(x).max()) <= self.range:
            limits = f"-{self.range:g} to {self.range:g}"
            raise OutOfRange(f"a contribution holds a number outside {limits}")
        return encode(torch.from_numpy(x), self.fraction).numpy().astype(self.dtype)

    def decode(self, total: Integers, n: int) -> Floats:
        """The sum of n contributions; `SumFailed` if it is larger than they can add up to."""
        signed = torch.from_numpy(total.view(total.dtype.str.replace("u", "i")))
        x = decode(signed, self.fraction, torch.float64).numpy()
        if len(x) and float(np.abs(x).max()) > n * self.range:
            why = "a masked contribution was tampered with"
            raise SumFailed(f"the total is larger than its clients may add up to; {why}")
        return x

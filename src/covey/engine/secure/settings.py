"""The settings that all parties of a secure sum agree on; loads no other package."""

from dataclasses import dataclass
from math import floor
from typing import Literal

from covey.core.errors import CoveyError

SUMMED = ("report", "train")  # steps whose answers are summed
SINGLES = frozenset({"enrol", *SUMMED})  # steps of which a server of sums reads no single answer
FEWEST = 3  # in a sum of two, each learns the other's contribution
MOST_HOLDERS = 30_000  # a holder's place in the list is a point of a share


class SumFailed(CoveyError):
    """There is no total: too few clients were left, or a check failed. No contribution was read."""


@dataclass(frozen=True)
class FleetConfig:
    """Where the clients are, and whether the server receives each upload, sums, or ciphertexts."""

    use: str = "covey.engine.fleet.simulated:SimulatedFleet"
    secure: bool = False
    neighbours: int = 16  # clients with which a client shares a mask
    holders: int = 128  # clients that hold shares of a client's secrets
    # A sum needs more than this share of its clients, a secret more than this share of its holders.
    threshold: float = 0.5
    bits: Literal[32, 64] = 64  # of the fixed-point integers
    range: float = 4096.0  # the largest number that a client may contribute
    group: int = 0  # clients of a group, each of which is summed by itself; 0: all are one
    # A group is left out if a row of its sum is more than this many times as long as in the median
    # group; 0: no check.
    longest: float = 0.0
    clear: tuple[Literal["enrol", "report"], ...] = ()  # steps in which each answer may be read
    masks: bool = True  # False: the same sums without masks, which cancel; for large simulations
    # Whether the server adds ciphertexts of the clients and has the parameters encrypted only.
    encrypted: bool = False

    def __post_init__(self) -> None:
        for name, value in (("neighbours", self.neighbours), ("holders", self.holders)):
            if value < 2 or value % 2 or value > MOST_HOLDERS:
                wrong = f"fleet.{name} = {value}"
                raise CoveyError(f"{wrong}; give an even number from 2 to {MOST_HOLDERS}")
        if self.secure and self.encrypted:
            wrong = "fleet.secure and fleet.encrypted are two ways to hide uploads"
            raise CoveyError(f"{wrong}; set one of them to false")
        if not 0.5 <= self.threshold < 1:
            wrong = f"fleet.threshold = {self.threshold}; it is below 1 and at least 0.5"
            why = "because below that a lying server could open both masks of a client"
            raise CoveyError(f"{wrong}, {why}")
        if self.group and self.group < FEWEST:
            wrong = f"fleet.group = {self.group}"
            raise CoveyError(f"{wrong}; give at least {FEWEST} clients, or 0 for all in one")
        if self.longest and (not self.group or not self.longest > 1):
            wrong = f"fleet.longest = {self.longest:g} compares groups"
            raise CoveyError(f"{wrong}; set fleet.group, and over 1")
        if not 0 < self.range < float("inf"):
            raise CoveyError(f"fleet.range = {self.range}; it must be over 0 and finite")

    @property
    def hides(self) -> frozenset[str]:
        """Steps in which the server can read no single answer."""
        if self.encrypted:
            return SINGLES
        return SINGLES.difference(self.clear) if self.secure else frozenset()

    def least(self, n: int) -> int:
        """How many of n clients must be left for a sum to be opened."""
        return max(FEWEST, floor(self.threshold * n) + 1)

    def shares(self, holders: int) -> int:
        """How many of so many shares open a secret: over half, so that two disjoint sets cannot."""
        return floor(self.threshold * holders) + 1

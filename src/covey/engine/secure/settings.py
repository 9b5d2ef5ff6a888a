"""What all parties of a secure sum agree on beforehand. Loads nothing, so that a configuration can name it."""

from dataclasses import dataclass
from math import floor
from typing import Literal

from covey.core.errors import CoveyError

SUMMED = ("report", "train")  # steps whose answers are summed
SINGLES = frozenset(
    {"enrol", *SUMMED}
)  # in which a server that hears sums only can read no single answer
FEWEST = 3  # in a sum of two, each learns the other's part
MOST_HOLDERS = 30_000  # a holder's place in the list is a point of a share


class SumFailed(CoveyError):
    """No total: too few clients were left, or something does not add up. Nothing was opened that should not be."""


@dataclass(frozen=True)
class FleetConfig:
    """Where the clients are, and whether the server receives each upload or only secure sums."""

    use: str = (
        "covey.engine.fleet.simulated:SimulatedFleet"  # the class that holds or reaches the clients
    )
    secure: bool = False
    neighbours: int = 16  # clients with whom a client shares a mask
    holders: int = 128  # clients that hold shares of a client's secrets
    threshold: float = (
        0.5  # a sum needs more than this share of its clients, a secret of its holders
    )
    bits: Literal[32, 64] = 64  # of the fixed-point numbers
    range: float = 4096.0  # the largest number that a client may contribute
    group: int = 0  # clients of a group, each of which is summed by itself; 0: all are one
    longest: float = 0.0  # a group's sum, in terms of the median group's: what is longer is left out; 0: no check
    clear: tuple[
        Literal["enrol", "report"], ...
    ] = ()  # steps in which each answer may be read all the same
    masks: bool = True  # False: the same integers are summed without masks, which cancel; for large simulations

    def __post_init__(self) -> None:
        for name, value in (("neighbours", self.neighbours), ("holders", self.holders)):
            if value < 2 or value % 2 or value > MOST_HOLDERS:
                raise CoveyError(
                    f"fleet.{name} = {value}; give an even number from 2 to {MOST_HOLDERS}"
                )
        if not 0.5 <= self.threshold < 1:
            raise CoveyError(
                f"fleet.threshold = {self.threshold}; it is from 0.5, below which a lying server could open both"
                " masks of a client, to below 1"
            )
        if self.group and self.group < FEWEST:
            raise CoveyError(
                f"fleet.group = {self.group}; a group has at least {FEWEST} clients, 0 for all in one"
            )
        if self.longest and (not self.group or not self.longest > 1):
            raise CoveyError(
                f"fleet.longest = {self.longest:g} compares groups; it is over 1, and fleet.group is set"
            )
        if not 0 < self.range < float("inf"):
            raise CoveyError(f"fleet.range = {self.range}; it must be over 0 and finite")

    @property
    def hides(self) -> frozenset[str]:
        """Steps in which the server can read no single answer."""
        return SINGLES.difference(self.clear) if self.secure else frozenset()

    def least(self, n: int) -> int:
        """Clients of n that must be left for a sum to be opened."""
        return max(FEWEST, floor(self.threshold * n) + 1)

    def shares(self, holders: int) -> int:
        """Shares of so many that open a secret: more than half, so that no two disjoint sets can."""
        return floor(self.threshold * holders) + 1

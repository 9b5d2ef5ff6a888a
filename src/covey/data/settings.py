"""Options of filters and splits; loads neither NumPy nor PyTorch."""

from dataclasses import dataclass
from typing import Literal

from covey.core import CoveyError, among_choices

Kind = Literal["ratio", "loo", "temporal", "given"]
Order = Literal["random", "time", "file"]
RowsKept = Literal["distinct", "given"]
Pool = Literal["train", "all"]


@dataclass(frozen=True)
class SplitConfig:
    """How a dataset is split.

    "loo" (leave one out) and "ratio" split the history of each user, "temporal" splits all rows at
    two points in time, and "given" is the split that came with the data.
    """

    kind: Kind = "loo"
    order: Order = "time"  # by which the last rows of a user are test; without times, the file's
    rows: RowsKept = "distinct"  # one row for each (user, item), or all of them
    test: float = 0.2  # share of all rows; ratio and temporal
    valid: float = 0.1  # share of the rows that are not test; given: if it has no validation part
    seed: int = 0

    def __post_init__(self) -> None:
        among_choices("split", self)
        if not 0 < self.test < 1 or not 0 <= self.valid < 1:
            shares = f"split.test = {self.test}, split.valid = {self.valid}"
            raise CoveyError(f"{shares}: shares, test > 0 and both < 1")
        if abs(self.seed) >= 2**62:
            raise CoveyError(f"split.seed = {self.seed}; it has to fit into 62 bits")
        if self.kind == "temporal" and self.order != "time":
            why = "a temporal split is by time; use order = 'time'"
            raise CoveyError(f"split.order = '{self.order}': {why}")


@dataclass(frozen=True)
class Filter:
    """What is dropped: the first line, rare items, users with few rows, and outside of a core."""

    min_user: int = 0  # rows that a user needs
    min_item: int = 0  # rows that an item needs
    drop_first_line: bool = False
    core: int = 0  # rows that every user and every item needs in the end


# The filters of the papers. In their files, the first line of FilmTrust was taken for a header.
DEFAULT_FILTERS: dict[str, Filter] = {
    "filmtrust": Filter(min_user=5, drop_first_line=True),
    "lastfm-2k": Filter(min_user=5),
}

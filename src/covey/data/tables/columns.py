"""Which columns of a table are read, and how."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from covey.core.errors import CoveyError

CLOCKLESS = ("order", "position", "rank")  # names of positions in a user's history
ALIASES = {
    "user": "user userid uid username reviewerid customer customerid client clientid member"
    " memberid visitor visitorid account accountid person personid reader readerid viewer viewerid",
    "item": "item itemid iid product productid movie movieid film filmid asin parentasin sku"
    " article articleid artist artistid business businessid book bookid isbn song songid track"
    " trackid game gameid content contentid stockcode",
    "time": "timestamp time date datetime ts unixreviewtime unixtime reviewdate createdat"
    " order position rank",
    "title": "title itemtitle itemname movietitle producttitle productname booktitle artistname",
    "rating": "rating ratings stars score overall userrating bookrating",
    "split": "",
    "order": "",
}


@dataclass(frozen=True)
class Columns:
    """Which columns to read, and how. A column that is None is found by its usual names."""

    user: str | None = None
    item: str | None = None
    time: str | None = None  # empty: no times are read
    title: str | None = None
    rating: str | None = None
    split: str | None = None  # which part a row belongs to: train, valid or test
    order: str | None = None  # settles the order of equal times
    names: tuple[str, ...] = ()  # of all columns, for a file without a header
    delimiter: str | None = None  # of any length; None: found from the first lines
    encoding: str = "utf-8-sig"
    time_format: str | None = None  # as in datetime.strptime; None: numbers and usual dates
    min_rating: float | None = None  # rows with a lower rating are left out
    where: Mapping[str, str | Collection[str]] = field(default_factory=dict)  # column -> values
    drop_incomplete: bool = False  # leave out rows without a user, item, time or rating
    python: bool = False  # messages name arguments of Python, not options of the command line

    def option(self, kind: str, value: str = "") -> str:
        """How the caller names an option, for messages."""
        if self.python:
            return f"{kind}={value}" if value else f"{kind}=True"
        return f"--{kind.replace('_', '-')} {value}".rstrip()

    def places(self, header: list[str], where: str) -> dict[str, int]:
        """The place of each column that there is; `where` names the table in messages."""
        needed = ["user", "item"] + ["rating"] * (self.min_rating is not None)
        for kind in needed:
            self.needed(header, kind, getattr(self, kind), where)
        found = {kind: place(header, kind, getattr(self, kind), where) for kind in ALIASES}
        return {kind: at for kind, at in found.items() if at is not None}

    def needed(self, header: list[str], kind: str, given: str | None, where: str) -> int:
        """The place of a column without which the table cannot be read."""
        at = place(header, kind, given, where)
        if at is None:
            bare = "" if self.python else ", or --columns for a file without a header"
            name = "'COLUMN'" if self.python else "COLUMN"
            raise CoveyError(
                f"{where} has no column for the {kind}; it has: {', '.join(header) or 'nothing'};"
                f" say {self.option(kind, name)}{bare}"
            )
        return at


def place(header: list[str], kind: str, given: str | None, where: str) -> int | None:
    """The place of a column: the given one, or the one with the most usual name."""
    if given:
        if given not in header:
            there = f"it has: {', '.join(header)}; is the delimiter right?"
            raise CoveyError(f"{where} has no column '{given}'; {there}")
        return header.index(given)
    aliases = [] if given == "" else ALIASES[kind].split()
    names = [plain(name) for name in header]
    return next((names.index(alias) for alias in aliases if alias in names), None)


def plain(name: str) -> str:
    """A name of a column in lower-case letters only."""
    return re.sub(r"[^a-z]", "", name.lower())

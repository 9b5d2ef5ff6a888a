"""Targets as users name them: rows of the item table, or ids of the data."""

from collections.abc import Sequence

from covey.core.errors import CoveyError
from covey.data.naming import named

BY_ID = "id:"


def rows_of(given: str, ids: Sequence[str] | None, n_items: int, dataset: str) -> tuple[int, ...]:
    """Return the rows of items such as "7,id:50", sorted and without repetition."""
    words = [word.strip() for word in given.split(",") if word.strip()]
    if not words:
        raise _wrong(given, n_items)
    return tuple(sorted({_row(word, ids, n_items, dataset) for word in words}))


def _row(word: str, ids: Sequence[str] | None, n_items: int, dataset: str) -> int:
    if word.startswith(BY_ID):
        own = word.removeprefix(BY_ID).strip()
        if ids is None:
            wrong = "the dataset is not available, so ids are unknown; name items by row"
            raise CoveyError(f"--targets {BY_ID}{own}: {wrong}")
        if own not in ids:
            find = f"find it with covey data show {dataset} --find TITLE"
            raise CoveyError(f"--targets {BY_ID}{own}: {dataset} has no item with that id; {find}")
        return ids.index(own)
    row = int(word) if word.removeprefix("-").isdecimal() else -1
    if not 0 <= row < n_items:
        raise _wrong(word, n_items)
    return row


def _wrong(word: str, n_items: int) -> CoveyError:
    rows = f"name items by row, from 0 to {n_items - 1}, or by their id in the data"
    return CoveyError(f"--targets {word}: {rows}, such as {BY_ID}50, separated by commas")


def with_names(
    titles: Sequence[str], ids: Sequence[str] | None, targets: Sequence[int]
) -> list[str]:
    """Return titles of all items, with the full names of targets."""
    out = list(titles)
    for row in targets:
        own = None if ids is None else ids[row]
        untitled = titles[row] == f"item {row if own is None else own}"  # made of the id
        out[row] = named(row, own, "" if untitled else titles[row])
    return out

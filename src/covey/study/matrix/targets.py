"""Targets as a user names them: rows of the item table, or the data's own ids."""

from collections.abc import Sequence

from covey.core.errors import CoveyError
from covey.data.naming import named

BY_ID = "id:"


def rows_of(given: str, ids: Sequence[str] | None, n_items: int, dataset: str) -> tuple[int, ...]:
    """Of "7,id:50", each once, from low to high; ids are None where the dataset is not here."""
    words = [word.strip() for word in given.split(",") if word.strip()]
    if not words:
        raise _wrong(given, n_items)
    return tuple(sorted({_row(word, ids, n_items, dataset) for word in words}))


def _row(word: str, ids: Sequence[str] | None, n_items: int, dataset: str) -> int:
    if word.startswith(BY_ID):
        return _row_of_id(word.removeprefix(BY_ID).strip(), ids, dataset)
    row = int(word) if word.removeprefix("-").isdecimal() else -1
    if not 0 <= row < n_items:
        raise _wrong(word, n_items)
    return row


def _row_of_id(own: str, ids: Sequence[str] | None, dataset: str) -> int:
    if ids is None:
        raise CoveyError(
            f"--targets {BY_ID}{own}: the dataset is not here, so ids are not known; name items by row"
        )
    if own not in ids:
        look = f"covey data show {dataset} --find TITLE"
        raise CoveyError(
            f"--targets {BY_ID}{own}: {dataset} has no item with that id; look for it with {look}"
        )
    return ids.index(own)


def _wrong(word: str, n_items: int) -> CoveyError:
    return CoveyError(
        f"--targets {word}: name items by row, from 0 to {n_items - 1}, or by the data's own id, such as {BY_ID}50,"
        " with commas between them"
    )


def with_names(
    titles: Sequence[str], ids: Sequence[str] | None, targets: Sequence[int]
) -> list[str]:
    """Titles of all items, where targets have their full names."""
    out = list(titles)
    for row in targets:
        own = None if ids is None else ids[row]
        untitled = (
            titles[row] == f"item {row if own is None else own}"
        )  # what stands for a title says nothing more
        out[row] = named(row, own, "" if untitled else titles[row])
    return out

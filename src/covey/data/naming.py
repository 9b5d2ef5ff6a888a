"""How an item is named: by its row in every table of a run, by the data's own id, and by its title."""

import numpy as np

from .dataset import Array, Dataset


def own_ids(dataset: Dataset) -> Array:
    """The own id of every row, as the data has it; the row's number as text where it has none."""
    return np.arange(dataset.n_items).astype(np.str_) if dataset.items is None else dataset.items


def ids_of(dataset: Dataset) -> list[str]:
    """The own id of every row as text."""
    return [str(own) for own in own_ids(dataset).tolist()]


def named(row: int, own: str | None, title: str = "") -> str:
    """row 357, id 50 (Star Wars (1977))"""
    words = f"row {row}" if own is None else f"row {row}, id {own}"
    return f"{words} ({title})" if title else words


def find(dataset: Dataset, text: str) -> list[int]:
    """The row of the item with this id first, then of those with this text in their titles."""
    by_id = [row for row, own in enumerate(ids_of(dataset)) if own == text]
    by_title = [
        row for row, title in enumerate(dataset.titles) if text.casefold() in title.casefold()
    ]
    return list(dict.fromkeys(by_id + by_title))

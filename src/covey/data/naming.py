"""The three names of an item: its row in the tables of a run, its original id, and its title."""

from .dataset import Dataset, own_ids


def ids_of(dataset: Dataset) -> list[str]:
    return [str(own) for own in own_ids(dataset).tolist()]


def named(row: int, own: str | None, title: str = "") -> str:
    """Names an item for a person, such as "row 357, id 50 (Star Wars (1977))"."""
    words = f"row {row}" if own is None else f"row {row}, id {own}"
    return f"{words} ({title})" if title else words


def find(dataset: Dataset, text: str) -> list[int]:
    """The rows of the item with this id, then of the items with this text in their titles."""
    by_id = [row for row, own in enumerate(ids_of(dataset)) if own == text]
    titles, part = enumerate(dataset.titles), text.casefold()
    by_title = [row for row, title in titles if part in title.casefold()]
    return list(dict.fromkeys(by_id + by_title))

"""Lists of recommendations as a DataFrame, or in a file that is written whole or not at all."""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.core import atomic
from covey.core.errors import CoveyError

if TYPE_CHECKING:  # a name of a file is checked without loading torch
    from covey.data.dataset import Dataset

COLUMNS = ("user", "item", "rank", "score", "title")
KINDS = (".csv", ".jsonl", ".parquet")
PARQUET = "a Parquet file"
AT_ONCE = 1 << 16  # rows of a Parquet file in memory


@dataclass(frozen=True)
class Choice:
    """One item of a list of recommendations, by the id that the dataset has for it."""

    item: Any
    title: str
    score: float


Lists = Iterable[tuple[Any, list[Choice]]]  # a user and its list, best first


def frame(lists: Lists) -> Any:
    """A pandas DataFrame with a row for each item of each list."""
    pandas = _extra("pandas", "as_frame=True")
    return pandas.DataFrame(list(_rows(lists)), columns=list(COLUMNS))


def check_target(path: Path) -> None:
    """Refuses, before anything is computed, a name of another kind, or of a file of a run."""
    if path.suffix not in KINDS or path.name in ("metrics.jsonl", "rounds.jsonl"):
        raise CoveyError(f"{path} is no name for lists; give one that ends in {', '.join(KINDS)}")
    if path.suffix == ".parquet":
        _extra("pyarrow.parquet", PARQUET)


def write(lists: Lists, path: Path, dataset: "Dataset") -> Path:
    """Writes lists as they come, in memory that does not grow with their number.

    Args:
        lists: Users and their lists.
        path: The file: .csv or .parquet with a row for each item, .jsonl with a line for each user.
        dataset: The dataset, whose ids have a type.
    """
    check_target(path)

    def fill(part: Path) -> None:
        if path.suffix == ".parquet":
            return _fill_parquet(lists, part, dataset)
        with part.open("w", encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                return csv.writer(file).writerows(chain([COLUMNS], _rows(lists)))
            for user, chosen in lists:
                file.write(json.dumps({"user": user, "items": list(map(vars, chosen))}) + "\n")

    atomic.write(path, fill)
    return path


def _rows(lists: Lists) -> Iterator[tuple[Any, ...]]:
    for user, chosen in lists:
        for rank, choice in enumerate(chosen, 1):
            yield user, choice.item, rank, choice.score, choice.title


def _fill_parquet(lists: Lists, part: Path, dataset: "Dataset") -> None:
    arrow, parquet = (_extra(name, PARQUET) for name in ("pyarrow", "pyarrow.parquet"))
    kinds = [arrow.string(), arrow.string(), arrow.int32(), arrow.float64(), arrow.string()]
    for at, ids in enumerate((dataset.users, dataset.items)):
        if ids is not None and ids.dtype.kind in "iu":
            kinds[at] = arrow.from_numpy_dtype(ids.dtype)
    schema, rows = arrow.schema(list(zip(COLUMNS, kinds))), _rows(lists)
    with parquet.ParquetWriter(part, schema) as writer:
        while some := list(islice(rows, AT_ONCE)):
            writer.write_table(arrow.table(list(map(list, zip(*some))), schema=schema))


def _extra(name: str, what: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        remedy = "install it with pip install 'covey[tables]'"
        raise CoveyError(f"{what} needs {name.partition('.')[0]}; {remedy}") from error

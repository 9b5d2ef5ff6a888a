"""What `covey.load` takes besides names and files: DataFrames, matrices, lists."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import covey
from covey.core.errors import CoveyError
from covey.data import Dataset

USERS, ITEMS = [7, 8, 7, 9], ["x", "y", "y", "x"]
DAYS = [datetime(2024, 1, day, 12, tzinfo=UTC) for day in (1, 2, 3, 4)]


def frame_of(library: str, **columns: list[Any]) -> Any:
    module = pytest.importorskip(library)
    return (module.table if library == "pyarrow" else module.DataFrame)(columns)


def own(d: Dataset) -> list[tuple[Any, Any]]:
    assert d.users is not None and d.items is not None
    return list(zip(d.users[d.user_E].tolist(), d.items[d.item_E].tolist()))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_frame_of_any_library(library: str) -> None:
    d = covey.load(frame_of(library, who=USERS, item=ITEMS, when=DAYS), user="who", time="when")
    assert own(d) == list(zip(USERS, ITEMS)) and d.clock
    assert d.time_E is not None and d.time_E.tolist() == [day.timestamp() for day in DAYS]
    days = [date(2024, 1, 2), None, date(2024, 1, 1), date(2024, 1, 2)]
    gaps = frame_of(library, user=USERS, item=ITEMS, date=days)
    with pytest.raises(CoveyError, match="the DataFrame: of 4 rows there are 1 without time"):
        covey.load(gaps)
    kept = covey.load(gaps, drop_incomplete=True).time_E
    assert kept is not None and kept.tolist() == [1704153600, 1704067200, 1704153600]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_rows_of_a_frame_are_chosen(library: str) -> None:
    columns = dict(user=USERS, item=ITEMS, rating=[5, 4, 1, None], event=["a", "b", "a", "b"])
    frame = frame_of(library, **columns)
    with pytest.warns(UserWarning, match=r"whatever its rating \(1 to 5\); min_rating=N keeps"):
        assert len(covey.load(frame)) == 4
    liked = covey.load(frame, min_rating=4, drop_incomplete=True)
    assert own(liked) == [(7, "x"), (8, "y")]
    bought = covey.load(frame, where={"event": "b"}, rating="")
    assert own(bought) == [(8, "y"), (9, "x")]


def test_missing_values_of_pandas() -> None:
    """Its nullable columns have a missing value that cannot be compared."""
    pandas = pytest.importorskip("pandas")
    columns = {k: pandas.array([1, None, 3], dtype="Int64") for k in ("user", "rating", "time")}
    frame = pandas.DataFrame(columns | {"item": pandas.array(["x", "y", None], dtype="string")})
    with pytest.raises(
        CoveyError, match="of 3 rows there are 1 without user and 1 without item and 1 without"
    ):
        covey.load(frame)
    frame.loc[3] = [5, 2, 6, "y"]
    kept = covey.load(frame, min_rating=1, drop_incomplete=True)
    assert own(kept) == [(1, "x"), (5, "y")]
    assert kept.time_E is not None and kept.time_E.tolist() == [1, 6]


def test_a_lazy_frame_is_collected() -> None:
    lazy = frame_of("polars", user=USERS, item=ITEMS).lazy()
    assert own(covey.load(lazy)) == list(zip(USERS, ITEMS))


@pytest.mark.parametrize("kind", ["csr_matrix", "coo_array", "csc_array"])
def test_a_sparse_matrix(kind: str) -> None:
    dense = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 1, 1]])
    d = covey.load(getattr(scipy.sparse, kind)(dense))
    assert sorted(own(d)) == [(0, 1), (1, 0), (3, 1), (3, 2)]
    stars = covey.load(scipy.sparse.csr_matrix(dense * np.arange(2, 5)), min_rating=2.5)
    assert (len(stars), stars.time_E) == (3, None)


def test_ids_of_any_size_and_with_gaps() -> None:
    big = covey.load([(2**64 - 1, 1), (2**63, 2)])
    assert own(big) == [("18446744073709551615", 1), ("9223372036854775808", 2)]
    gaps = covey.load(frame_of("polars", user=[7, None, 8], item=[1, 2, 3]), drop_incomplete=True)
    assert own(gaps) == [(7, 1), (8, 3)]


def test_a_list_of_pairs_and_of_triples() -> None:
    d = covey.load(list(zip(USERS, ITEMS)), name="mine")
    assert own(d) == list(zip(USERS, ITEMS)) and d.time_E is None and d.name == "mine"
    timed = covey.load([[u, i, day] for u, i, day in zip(USERS, ITEMS, DAYS)])
    assert timed.time_E is not None and timed.time_E.tolist() == [d.timestamp() for d in DAYS]
    core = covey.load([(u, i) for u in "abc" for i in "xyz"] + [("d", "x")], core=3)
    assert (core.n_users, core.n_items) == (3, 3)
    assert covey.load(core, core=3) is not None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"a": ["x"]}, "cannot be made of a dict; covey.load takes the name of a dataset, a file"),
        (3, "cannot be made of a int; .* a list of pairs"),
        (np.eye(3), "cannot be made of a ndarray; .* a scipy sparse matrix"),
        (["ab", "cd"], "found 'ab'; covey.load takes .*pairs"),
        ([("a", "x"), ("b", "y", 1)], r"found rows of lengths \[2, 3\]; covey.load takes"),
        ([("a",)], r"found rows of lengths \[1\]"),
        ([], "no interactions"),
        ([("a", "x"), (1, "y")], "the list of pairs: the user column mixes numbers and text"),
        ([("a", ["x"]), ("b", "y")], "the list of pairs: .*unhashable"),
        (scipy.sparse.csr_matrix((3, 3)), "no interactions"),
    ],
)
def test_anything_else_is_told_what_is_taken(source: Any, message: str) -> None:
    with pytest.raises(CoveyError, match=message) as caught:
        covey.load(source)
    assert "\n" not in str(caught.value)


def test_options_that_do_not_apply(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'ratings'"):
        covey.load([("a", "x")], ratings=3)
    with pytest.raises(CoveyError, match="prepared already"):
        covey.load("synthetic", min_rating=3)
    (tmp_path / "r.csv").write_text("user::item\na::x\nb::y\nb::x\n")
    assert own(covey.load(tmp_path / "r.csv")) == [("a", "x"), ("b", "y"), ("b", "x")]
    with pytest.raises(CoveyError, match=r"no file .*none\.csv"):
        covey.load(str(tmp_path / "none.csv"))


def test_two_million_rows_need_little_memory() -> None:
    """Numbers go from the frame to arrays in pieces: peak memory grows by less than 300 MB."""
    import tracemalloc

    polars = pytest.importorskip("polars")
    user_E = np.arange(200_000) % 6000
    frame = polars.DataFrame({"user": user_E, "item": user_E[::-1] % 999, "time": user_E})
    tracemalloc.start()
    try:
        assert len(covey.load(frame)) == len(user_E)
        assert tracemalloc.get_traced_memory()[1] < 30e6  # a tenth of the rows
    finally:
        tracemalloc.stop()

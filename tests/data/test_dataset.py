"""Datasets, the files in which they are saved, and their checks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from covey.core.errors import CoveyError
from covey.data import Dataset, Synthetic, check, generate
from covey.data import dataset as dataset_module
from covey.data.dataset import renumber

TINY = Dataset(
    "tiny",
    2,
    3,
    np.array([0, 0, 1], np.int32),
    np.array([0, 1, 2], np.int32),
    np.array([1.0, 2.0, 3.0]),
    np.array(["ann", "bo"]),
    np.array(["x", "y", "zürich"]),
    ("One", "Two\nlines", "Größe"),
    True,
)


def same(a: Dataset, b: Dataset) -> bool:
    for key in ("user_E", "item_E", "time_E", "users", "items"):
        x, y = getattr(a, key), getattr(b, key)
        if (x is None) != (y is None) or (
            x is not None and (x.dtype != y.dtype or not np.array_equal(x, y))
        ):
            return False
    return all(
        getattr(a, k) == getattr(b, k) for k in ("name", "n_users", "n_items", "titles", "clock")
    )


@pytest.mark.parametrize("dataset", [TINY, generate(Synthetic(users=20, items=40, mean_items=4))])
def test_a_saved_dataset_comes_back(dataset: Dataset, tmp_path: Path) -> None:
    dataset.save(tmp_path / "new" / "a.npz")
    assert same(Dataset.load(tmp_path / "new" / "a.npz"), dataset)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.npz"]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.npz"
    TINY.save(path)

    def full(file: object, **members: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="disk full"):
        replace(TINY, name="other").save(path)
    assert same(Dataset.load(path), TINY)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_prepared_file_needs_no_pickle(tmp_path: Path) -> None:
    TINY.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert {key: file[key].dtype.kind for key in file}["titles"] == "u"


def test_loading_something_else_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match="no file"):
        Dataset.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    (tmp_path / "empty.npz").write_bytes(b"")
    TINY.save(tmp_path / "cut.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:-40])
    for name in ("text", "other", "empty", "cut"):
        with pytest.raises(CoveyError, match="not a prepared dataset"):
            Dataset.load(tmp_path / f"{name}.npz")


NONE = np.empty(0, np.int32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user_E": NONE, "item_E": NONE, "time_E": None}, "no interactions"),
        ({"n_users": 1, "user_E": np.zeros(3, np.int32), "users": None}, "at least 2"),
        (
            {"n_items": 1, "item_E": np.zeros(3, np.int32), "items": None, "titles": ()},
            "at least 2",
        ),
        ({"time_E": np.array([1.0, np.nan, 2.0])}, "missing or infinite times"),
        ({"time_E": np.array([1.0, 2.0])}, "unequal lengths"),
        ({"time_E": None}, "clock but no times"),
        ({"user_E": np.array([0, 1, 2])}, "user ids outside"),
        ({"item_E": np.array([0, -1, 2])}, "item ids outside"),
        ({"item_E": np.array([0.0, 1.0, 2.0])}, "item ids outside"),
        ({"users": np.array(["ann"])}, "needs 2 users"),
        ({"titles": ("One",)}, "needs 3 titles"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(change: dict[str, object], message: str) -> None:
    with pytest.raises(CoveyError, match=message) as error:
        check(replace(TINY, **change))  # type: ignore[arg-type]
    assert "\n" not in str(error.value) and "'tiny'" in str(error.value)


def test_a_dataset_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    values = dataset_module._wrong_values
    monkeypatch.setattr(dataset_module, "_wrong_values", lambda d: looked.append(d) or values(d))
    made = generate(Synthetic(users=5, items=20, mean_items=4))
    looked.clear()
    other = replace(made, name="other")
    assert check(check(other)) is other
    assert len(looked) == 1


def test_ids_are_numbered_by_first_appearance() -> None:
    dense_E, old = renumber(np.array([7, 3, 7, 9, 3]))
    assert dense_E.tolist() == [0, 1, 0, 2, 1] and old.tolist() == [7, 3, 9]

"""Splits that come with the data, from a column or from files, and checks for leaks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.core.errors import CoveyError
from covey.data import Dataset, Filter, SplitConfig, apply_filter, folder
from covey.data.checks import summarise, warnings
from covey.data.dataset import part_of, together
from covey.data.split import Split, split
from covey.data.tables.importing import Columns, from_file

ROWS = (
    "user,item,time,set\na,x,3,train\na,y,1,Training\na,z,2,test\n"
    "b,x,9,TEST\nb,y,8,dev\nb,z,7,train\n"
)


def imported(tmp_path: Path, text: str = ROWS, **columns: str) -> Dataset:
    (tmp_path / "rows.csv").write_text(text)
    return from_file(tmp_path / "rows.csv", "mine", Columns(**{"split": "set"} | columns)).dataset


def lists(d: Dataset, s: Split) -> list[list[list[str]]]:
    """The original item ids of train, valid and test, of each user."""
    assert d.items is not None
    names = d.items
    ragged = (s.train, s.valid, s.test)
    return [
        [names[p.values[p.owner == u].numpy()].tolist() for u in range(d.n_users)] for p in ragged
    ]


def test_a_column_says_who_trains(tmp_path: Path) -> None:
    d = imported(tmp_path)
    assert d.part_E is not None and d.part_E.tolist() == [0, 0, 2, 2, 1, 0]
    assert lists(d, split(d, SplitConfig("given"))) == [
        [["y", "x"], ["z"]],
        [[], ["y"]],
        [["z"], ["x"]],
    ]
    d.save(tmp_path / "d.npz")
    again = Dataset.load(tmp_path / "d.npz")
    assert again.part_E is not None and again.part_E.tolist() == d.part_E.tolist()


def test_files_say_who_trains(tmp_path: Path) -> None:
    for name, rows in {
        "train": "a,x,3\na,y,1\nb,z,7\n",
        "valid": "b,y,8\n",
        "test": "a,z,2\nb,x,9\n",
    }.items():
        (tmp_path / f"{name}.csv").write_text(
            "user,item,time,title\n" + rows.replace("\n", ",Song\n")
        )
    parts = {part: tmp_path / f"{part}.csv" for part in ("valid", "test")}
    read = from_file(tmp_path / "train.csv", "mine", parts=parts)
    assert lists(read.dataset, split(read.dataset, SplitConfig("given"))) == [
        [["y", "x"], ["z"]],
        [[], ["y"]],
        [["z"], ["x"]],
    ]
    assert read.dataset.clock and read.dataset.titles == ("Song",) * 3 and not read.notes
    with pytest.raises(CoveyError, match="leave out --split, or --valid and --test"):
        from_file(tmp_path / "train.csv", "mine", Columns(split="title"), parts=parts)
    (tmp_path / "test.csv").write_text("user,item\nc,w\n")
    read = from_file(tmp_path / "train.csv", "mine", parts=parts)
    assert read.dataset.time_E is None and not read.dataset.clock
    assert read.notes == ("some parts have no times: none are used",)
    assert (read.dataset.n_users, read.dataset.n_items) == (3, 4)


def test_a_folder_may_have_the_column(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "interactions.csv").write_text(
        ROWS.replace("set\n", "split\n").replace("time", "timestamp")
    )
    d = folder.read("mine", tmp_path)
    assert lists(d, split(d, SplitConfig("given"))) == [
        [["y", "x"], ["z"]],
        [[], ["y"]],
        [["z"], ["x"]],
    ]
    (tmp_path / "mine" / "interactions.csv").write_text("user,item,split\na,x,train\nb,y,later\n")
    with pytest.raises(
        CoveyError, match="line 3: 'later' is no part of a split; write train, valid or test"
    ):
        folder.read("mine", tmp_path)


def test_a_filter_keeps_the_parts(tmp_path: Path) -> None:
    d = apply_filter(imported(tmp_path, ROWS + "c,x,1,test\nc,x,2,test\n"), Filter(min_user=3))
    assert d.part_E is not None and d.part_E.tolist() == [0, 0, 2, 2, 1, 0]


@pytest.mark.parametrize("cell", ["", "later", "0", "tests"])
def test_a_wrong_cell(cell: str, tmp_path: Path) -> None:
    with pytest.raises(
        CoveyError, match=f"line 8: '{cell}' is no part of a split; write train, valid or test"
    ):
        imported(tmp_path, ROWS + f"c,x,1,{cell}\n")
    assert [part_of(x) for x in (" Train ", "VAL", "validation", "test")] == [0, 1, 1, 2]


def test_a_dataset_without_one(tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match=r"'mine' has no split; import it with .*--split COLUMN"):
        split(imported(tmp_path, split=""), SplitConfig("given"))
    with pytest.raises(CoveyError, match="no column 'part'"):
        imported(tmp_path, split="part")


def test_leaks_are_counted_and_not_tested(tmp_path: Path) -> None:
    """x of a is in train and test, and twice in train; z of b is in valid and test."""
    a = "a,x,train\na,x,train\na,x,test\na,y,test\n"
    b = "b,z,test\nb,z,valid\nb,y,train\n"
    d = imported(tmp_path, f"user,item,set\n{a}{b}c,y,test\n")
    found = summarise(d)
    assert (found.parts, found.leaks, found.untrained) == ((3, 1, 4), 2, 1)
    told = " ".join(warnings(found))
    assert "2 (user, item) pairs are in two parts" in told
    assert "1 users have something held out and nothing to train on" in told
    clean = lists(d, split(d, SplitConfig("given")))
    assert clean == [[["x"], ["y"], []], [[], ["z"], []], [["y"], [], ["y"]]]
    given = lists(d, split(d, SplitConfig("given", rows="given")))
    assert given[2] == [["x", "y"], ["z"], ["y"]]
    lost = replace(d, part_E=np.zeros(len(d), np.uint8))
    assert "has no test part" in " ".join(warnings(summarise(lost)))


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=40
    )
)
def test_files_and_a_column_are_the_same(rows: list[tuple[int, int, int]]) -> None:
    """Rows are random; ids are compared by the original names."""
    rows = [*rows, (0, 0, 0), (1, 1, 1), (2, 0, 2)]
    user_E, item_E, part_E = (
        np.array(x) for x in zip(*sorted(rows, key=lambda row: row[2]), strict=True)
    )
    whole = Dataset("d", 4, 5, user_E, item_E, part_E=part_E.astype(np.uint8))
    parts = {
        name: Dataset("d", 4, 5, user_E[part_E == part], item_E[part_E == part])
        for part, name in enumerate(("train", "valid", "test"))
    }
    made = together(parts)
    assert made.users is not None and made.items is not None and made.part_E is not None
    assert made.users[made.user_E].tolist() == user_E.astype(str).tolist()
    assert made.items[made.item_E].tolist() == item_E.astype(str).tolist()
    assert made.part_E.tolist() == part_E.tolist()
    kept = split(whole, SplitConfig("given"))
    sets = [
        {(int(u), int(i)) for u, i in zip(p.owner, p.values)}
        for p in (kept.train, kept.valid, kept.test)
    ]
    assert set.union(*sets) == {(u, i) for u, i, _ in rows}
    assert sum(map(len, sets)) == len(set.union(*sets))  # nothing is in two parts
    assert sets[0] == {(u, i) for u, i, p in rows if p == 0}  # and all that trains still trains


def test_a_time_in_the_test_part_does_not_order_training() -> None:
    """Item 0 is trained on at 1 and tested at 9: in training it comes before item 1 at 2."""
    rows = {
        "user_E": np.array([0, 0, 0, 1]),
        "item_E": np.array([0, 1, 0, 1]),
        "time_E": np.array([1.0, 2.0, 9.0, 3.0]),
    }
    d = Dataset("d", 2, 2, **rows, part_E=np.array([0, 0, 2, 2], np.uint8))
    assert split(d, SplitConfig("given")).train.values.tolist() == [0, 1]

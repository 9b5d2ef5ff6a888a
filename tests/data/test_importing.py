"""Import of users' tables: unusual formats are read, wrong ones are errors of one line."""

import gzip
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pytest

from covey.core.errors import CoveyError
from covey.data import SplitConfig
from covey.data.checks import summarise, warnings
from covey.data.dataset import Dataset
from covey.data.split import split
from covey.data.tables.importing import Columns, from_file, from_frame
from covey.data.tables.times import looks_like_times

SEMICOLONS = (
    'Kunde;Artikel;Datum;Titel\r\n007;A1;2024-01-31;"Tee; grün"\r\n'
    '7;A1;2024-02-01;\r\n007;B"2;2024-03-01;x\r\n'
)
QUOTED = (
    'user_id,movieId,title,timestamp\n1,01,"Good, the Bad ""and"" Ugly",5\n'
    '2,1,"Two\nlines",6\n2,01,,7\n'
)
ZEROS = "\ufeffuser\titem\n\n001\t0001\n01\t0001\n001\t01\n"


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def own(d: Dataset) -> list[tuple[str, str]]:
    assert d.users is not None and d.items is not None
    return list(zip(d.users[d.user_E].tolist(), d.items[d.item_E].tolist()))


def test_semicolons_and_dates(tmp_path: Path) -> None:
    columns = Columns("Kunde", "Artikel", "Datum", "Titel")
    d = from_file(write(tmp_path / "a.csv", SEMICOLONS), "a", columns).dataset
    assert own(d) == [("007", "A1"), ("7", "A1"), ("007", 'B"2')]  # the original ids
    assert d.titles == ("Tee; grün", "x")
    assert d.clock and d.time_E is not None and d.time_E[0] == 1706659200


def test_quoted_titles_and_leading_zeros(tmp_path: Path) -> None:
    d = from_file(write(tmp_path / "b.csv", QUOTED), "b").dataset
    assert own(d) == [("1", "01"), ("2", "1"), ("2", "01")]
    assert d.titles == ('Good, the Bad "and" Ugly', "Two lines")


def test_no_times_at_all(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "c.tsv.gz", "wt", encoding="utf-8") as file:
        file.write(ZEROS)
    d = from_file(tmp_path / "c.tsv.gz", "c").dataset
    assert own(d) == [("001", "0001"), ("01", "0001"), ("001", "01")]
    assert d.time_E is None and not d.clock


MISSING = "user,item,time\n ,x,1\na,y,\nb,x,1\nb,y,NaN\nb,z,2\na,x,3\n"


def test_rows_without_a_user_or_a_time_are_refused_and_can_be_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", MISSING)
    with pytest.raises(
        CoveyError, match="of 6 rows there are 1 without user and 2 without time; covey data"
    ):
        from_file(path, "d")
    with pytest.raises(CoveyError, match=r"drop_incomplete=True leaves.* time='' reads no times"):
        from_file(path, "d", Columns(python=True))
    read = from_file(path, "d", Columns(drop_incomplete=True))
    assert own(read.dataset) == [("b", "x"), ("b", "z"), ("a", "x")] and read.dataset.clock
    assert read.dataset.time_E is not None and read.dataset.time_E.tolist() == [1, 2, 3]
    assert read.notes == (
        "of 6 rows there are 1 without user and 2 without time: they are left out",
    )
    untimed = from_file(path, "d", Columns(time="", drop_incomplete=True))
    assert len(untimed.dataset) == 5 and untimed.dataset.time_E is None


def test_a_column_without_any_time_is_not_used(tmp_path: Path) -> None:
    read = from_file(write(tmp_path / "n.csv", "user,item,time\na,x,\nb,y,NaN\n"), "n")
    assert read.dataset.time_E is None and read.notes[0].startswith("no row has a time")


def test_what_was_read_and_what_was_not_is_told(tmp_path: Path) -> None:
    path = write(
        tmp_path / "shop.csv",
        "customer,sku,price,bought on,\na,x,1.5,2024-01-31,\nb,y,3,2024-02-01,\n",
    )
    read = from_file(path, "shop")
    assert read.columns() == "customer (user), sku (item); ignored: price, bought on"
    (note,) = read.notes
    assert (
        note.startswith("the column 'bought on' looks like times and was ignored")
        and "--time 'bought on'" in note
    )
    read = from_file(path, "shop", Columns(time="bought on"))
    assert (
        read.columns() == "customer (user), sku (item), bought on (time); ignored: price"
        and not read.notes
    )
    assert not from_file(path, "shop", Columns(time="")).notes  # times were left out on purpose


@pytest.mark.parametrize(
    ("name", "values", "looks"),
    [
        ("when", ["3", "", "4"], True),
        ("sold_at", ["3", "4"], True),
        ("x", ["2024-01-31", "31.1.2024"], True),
        ("x", ["1706659200", "1706745600"], True),
        ("x", ["1706659200000", "1706745600000"], True),
        ("rating", ["3", "4"], False),
        ("format", ["3", "4"], False),
        ("when", ["early", "late"], False),
        ("when", ["", ""], False),
        ("x", ["2024-01-31", "5"], False),
    ],
)
def test_columns_that_look_like_times(name: str, values: list[str], looks: bool) -> None:
    assert looks_like_times(name, values) == looks


def test_an_order_may_be_a_number_of_an_order(tmp_path: Path) -> None:
    """A position in the history is read as such, with a hint about a column of times."""
    path = write(tmp_path / "o.csv", "user,item,order,when\na,x,1,2024-01-31\nb,y,2,2024-02-01\n")
    read = from_file(path, "o")
    assert read.taken["time"] == "order" and "--time when" in read.notes[0]


def test_a_file_without_a_header(tmp_path: Path) -> None:
    path = write(tmp_path / "u.data", "1\t2\t5\t99\n3\t4\t1\t98\n")
    d = from_file(path, "u", Columns(names=("user", "item", "rating", "timestamp"))).dataset
    assert own(d) == [("1", "2"), ("3", "4")] and d.clock


def test_an_order_is_no_clock_and_an_encoding_can_be_said(tmp_path: Path) -> None:
    path = write(tmp_path / "e.csv", "user|item|order|title\na|x|1|é\nb|y|0|ü\n", "cp1252")
    with pytest.raises(
        CoveyError, match=r"is not UTF-8 text.*covey data import --encoding, such as cp1252"
    ):
        from_file(path, "e")
    d = from_file(path, "e", Columns(encoding="cp1252")).dataset
    assert d.titles == ("é", "ü") and d.time_E is not None and not d.clock


def test_spaces_behind_commas_and_other_dates(tmp_path: Path) -> None:
    text = 'User ID, "Product ID", date, title\n1, 2, {}, "Tea, green"\n3, 4, {}, x\n'
    for one, two in (
        ("2024/1/31", "2024/02/01"),
        ("31.1.2024 00:00", "01.02.2024"),
        ("2024-01-31T00:00Z", "2024-02-01"),
    ):
        d = from_file(write(tmp_path / "s.csv", text.format(one, two)), "s").dataset
        assert own(d) == [("1", "2"), ("3", "4")] and d.titles == ("Tea, green", "x")
        assert d.time_E is not None and d.time_E.tolist() == [1706659200, 1706745600]


def test_titles_of_a_second_file(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.csv", "user,item,name\na,x,Ann\nb,y,Bo\n")
    assert (
        from_file(rows, "r").dataset.titles == ()
    )  # in a table of users it may be the name of the user
    items = write(tmp_path / "items.csv", "item;name\ny;Why\nunused;No\n")
    assert from_file(rows, "r", items=items).dataset.titles == ("x", "Why")


def test_atomic_files_of_recbole(tmp_path: Path) -> None:
    inter = (
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\n1\t07\t3\t5.0\n2\t7\t1\t6\n"
    )
    write(tmp_path / "x.inter", inter)
    write(tmp_path / "x.item", 'item_id:token\tmovie_title:token_seq\n7\tAn "odd one\n07\tSeven\n')
    d = from_file(tmp_path / "x.inter", "x").dataset
    assert d.titles == ("Seven", 'An "odd one') and d.clock and own(d) == [("1", "07"), ("2", "7")]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", Columns(), "is empty; a header"),
        ("  \n\n", Columns(), "is empty"),
        ("user,item\n", Columns(), "no interactions"),
        ("user_item\n1_2\n", Columns(), "one column only.*covey data import --delimiter"),
        (
            "user;item\n1;2\n3;4\n",
            Columns(delimiter=","),
            "no column for the user; it has: user;item",
        ),
        (
            "user,thing\na,b\n",
            Columns(),
            "no column for the item; it has: user, thing; say --item COLUMN",
        ),
        ("user,item\na,b\n", Columns(item="sku"), "no column 'sku'; it has: user, item"),
        ("user,item\na,b\na\n", Columns(), "line 3: 1 columns, the header has 2"),
        ("user,item\na,b\na,b,c\n", Columns(), "line 3: 3 columns, the header has 2; put quotes"),
        (
            "user,item\na,b\n,b\n",
            Columns(),
            "of 2 rows there are 1 without user; covey data import --drop",
        ),
        ("user,item,time\na,b,1\na,c,soon\n", Columns(), "line 3: 'soon' is no time"),
        ("user,item,time\na,b,soon\n", Columns(), "leave times out: --time ''"),
        ("user,item,time\na,b,soon\n", Columns(python=True), "leave times out: time=''"),
        ("user,thing\na,b\n", Columns(python=True), "it has: user, thing; say item='COLUMN'$"),
        ("user,item,time\na,b,1\na,c,inf\n", Columns(), "line 3: 'inf' is no time"),
        (
            "user,item,time\na,b,1\na,c,2024-01-01\n",
            Columns(),
            "line 3: the time column mixes numbers and dates",
        ),
        ("user,item\na,b\n", Columns(), "1 user; federated training needs"),
        ("user,item\na,b\n", Columns(encoding="klingon"), "unknown encoding"),
        (
            "user,item,user\na,b,c\n",
            Columns(),
            "bad.csv: two columns are called 'user'; rename or remove one",
        ),
        ("a,b\nc,d\n", Columns("x", "y", names=("x", "x")), "two columns are called 'x'"),
    ],
)
def test_a_bad_file_is_told_in_one_line(
    text: str, columns: Columns, message: str, tmp_path: Path
) -> None:
    with pytest.raises(CoveyError, match=message) as caught:
        from_file(write(tmp_path / "bad.csv", text), "bad", columns)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_half(tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match="no file"):
        from_file(tmp_path / "none.csv", "none")
    whole = gzip.compress(QUOTED.encode() * 50)
    (tmp_path / "half.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CoveyError, match=r"cannot read .*is it whole"):
        from_file(tmp_path / "half.csv.gz", "half")


def test_a_frame_comes_in() -> None:
    pandas = pytest.importorskip("pandas")
    times = pandas.to_datetime(["2024-01-31", "2024-02-01", "2024-02-02"])
    frame = pandas.DataFrame({"user": [1.0, 2.0, 1.0], "item": ["01", "1", "1"], "time": times})
    d = from_frame(frame, "f", items=pandas.DataFrame({"item": ["1"], "title": ["One"]})).dataset
    assert own(d) == [("1", "01"), ("2", "1"), ("1", "1")] and d.titles == ("01", "One")
    assert d.time_E is not None and d.time_E[0] == 1706659200
    for wrong, message in (
        (frame.assign(item=["01", 1, "1"]), "the item column mixes numbers and text"),
        (frame.assign(user=[1.0, np.nan, 2.0]), "of 3 rows there are 1 without user"),
        (frame.drop(columns="user"), "the DataFrame has no column for the user"),
        (frame.rename(columns={"time": "item"}), "the DataFrame: two columns are called 'item'"),
    ):
        with pytest.raises(CoveyError, match=message):
            from_frame(wrong, "f")
    gaps = frame.assign(time=pandas.to_datetime(["2024-01-31", None, None]))
    with pytest.raises(CoveyError, match="of 3 rows there are 2 without time"):
        from_frame(gaps, "f")


def test_parquet_needs_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    needed = r"needs pyarrow: pip install 'covey\[tables\]'; or save a\.parquet as CSV"
    with pytest.raises(CoveyError, match=needed):
        from_file(tmp_path / "a.parquet", "a")


def test_parquet_is_read(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    days = [datetime(2024, 1, 31, tzinfo=UTC), datetime(2024, 2, 1, tzinfo=UTC)]
    frame = polars.DataFrame({"user": [7, 8], "item": ["x", "y"], "time": days})
    frame.write_parquet(tmp_path / "a.parquet")
    read = from_file(tmp_path / "a.parquet", "a").dataset
    assert own(read) == [("7", "x"), ("8", "y")]
    assert read.time_E is not None and read.time_E.tolist() == [1706659200, 1706745600]
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-9])
    with pytest.raises(CoveyError, match=r"b\.parquet: .*not a parquet file"):
        from_file(tmp_path / "b.parquet", "b")
    with pytest.raises(CoveyError, match="no file"):
        from_file(tmp_path / "c.parquet", "c")


def test_dates_without_a_time_are_times() -> None:
    pandas = pytest.importorskip("pandas")
    days = [date(2024, 1, 2), date(2024, 1, 1)]
    frame = pandas.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "time": days})
    dataset = from_frame(frame, "days").dataset
    assert dataset.time_E is not None and sorted(dataset.time_E) == [1704067200.0, 1704153600.0]


# --- properties that distort results ---


def rows(text: str, tmp_path: Path, name: str = "rows") -> Dataset:
    return from_file(write(tmp_path / f"{name}.csv", "user,item,time\n" + text), name).dataset


def test_facts_by_hand(tmp_path: Path) -> None:
    found = summarise(rows("a,x,1\na,x,2\na,y,2\nb,y,3\nb,z,3\nb,x,4\n", tmp_path))
    assert (found.users, found.items, found.rows, found.distinct, found.duplicates) == (
        2,
        3,
        6,
        5,
        1,
    )
    assert found.density == pytest.approx(5 / 6)
    assert (found.tied_rows, found.tied_users) == (4, 1)  # b's tie is not at the end
    assert (found.shortest, found.median, found.longest, found.time) == (3, 3, 3, "clock")
    assert [line.split()[0] for line in warnings(found)] == ["1", "1"]
    assert not warnings(summarise(rows("a,x,1\na,y,2\na,z,3\nb,x,1\nb,y,2\nb,z,3\n", tmp_path)))


def test_an_import_can_be_split(tmp_path: Path) -> None:
    lines = "".join(f"{u:03},{i:02},{u * i}\n" for u in range(4) for i in range(5))
    parts = split(rows(lines, tmp_path), SplitConfig("loo"))
    assert len(parts.test.values) == 4

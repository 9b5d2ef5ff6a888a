"""Reading folders of csv files, and the filters of the papers."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from covey.core.errors import CoveyError
from covey.data import (
    DEFAULT_FILTERS,
    Dataset,
    Filter,
    SplitConfig,
    Synthetic,
    apply_filter,
    folder,
    generate,
    load,
)
from covey.data.split import split

ROWS = "user,item,rating,timestamp\nbo,x,3,30\nann,y,5,10\nbo,y,1,20\n"


def write(root: Path, name: str, interactions: str, items: str | None = None) -> Path:
    (root / name).mkdir(parents=True)
    with gzip.open(root / name / "interactions.csv.gz", "wt", encoding="utf-8") as file:
        file.write(interactions)
    if items is not None:
        with gzip.open(root / name / "items.csv.gz", "wt", encoding="utf-8") as file:
            file.write(items)
    return root


def test_a_folder_becomes_a_dataset(tmp_path: Path) -> None:
    d = folder.read("mine", write(tmp_path, "mine", ROWS, 'item,title\ny,"Why, not"\nunused,No\n'))
    assert (d.name, d.n_users, d.n_items, d.clock) == ("mine", 2, 2, True)
    assert d.user_E.tolist() == [0, 1, 0] and d.item_E.tolist() == [0, 1, 1]
    assert d.time_E is not None and d.time_E.tolist() == [30, 10, 20]
    assert d.users is not None and d.users.tolist() == ["bo", "ann"]
    assert d.titles == ("x", "Why, not")  # the title of an item without one is its id


def test_order_is_not_a_clock_and_no_column_is_no_time(tmp_path: Path) -> None:
    write(tmp_path, "ordered", "user,item,order\na,x,1\nb,y,0\n")
    write(tmp_path, "plain", "user,item\na,x\n\nb,y\n")
    ordered, plain = folder.read("ordered", tmp_path), folder.read("plain", tmp_path)
    assert ordered.time_E is not None and not ordered.clock
    assert plain.time_E is None and not plain.clock and len(plain) == 2


def test_order_settles_ties_of_the_clock(tmp_path: Path) -> None:
    write(tmp_path, "both", "user,item,timestamp,order\na,x,5,0\na,y,5,1\na,z,5,2\nb,x,4,0\n")
    d = folder.read("both", tmp_path)
    assert d.time_E is not None and np.floor(d.time_E).tolist() == [5, 5, 5, 4]
    assert split(d, SplitConfig("loo")).test.values.tolist() == [2]


def test_a_plain_csv_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "interactions.csv").write_text("\ufeff" + ROWS, encoding="utf-8")
    assert len(folder.read("mine", tmp_path)) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,thing\na,b\n", "no column 'item'; it has: user, thing"),
        ("", "it is empty; a header"),
        ("user,item\na\n", "line 2: 1 columns, the header has 2"),
        ("user,item,timestamp\na,b,1\na,c,soon\n", "line 3: 'soon' is no time"),
        ("user,item\n,b\na,b\n", "of 2 rows there are 1 without user"),
        ("user,item\n", "no interactions"),
        ("user,item,order\na,b,nan\nb,c,1\n", "of 2 rows there are 1 without time"),
    ],
)
def test_a_bad_file_is_named_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match=message):
        folder.read("bad", write(tmp_path, "bad", text))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = (
        write(tmp_path, "bad", "user,item\n" + "".join(f"{k},{k * k}\n" for k in range(500)))
        / "bad"
    )
    whole = (path / "interactions.csv.gz").read_bytes()
    for damaged in (whole[:-20], whole[:100] + b"xxxxxxxx" + whole[108:], b"user,item\n1,2\n"):
        (path / "interactions.csv.gz").write_bytes(damaged)
        with pytest.raises(CoveyError, match=r"interactions\.csv\.gz"):
            folder.read("bad", tmp_path)


def test_an_unknown_name_lists_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "ml-100k", ROWS)
    (tmp_path / "notes").mkdir()
    monkeypatch.setenv("COVEY_DATA", str(tmp_path))
    with pytest.raises(
        CoveyError, match=r"did you mean 'ml-100k'\?.*: ml-100k; set COVEY_DATA=/path/to/data"
    ):
        load("ml100k")
    monkeypatch.delenv("COVEY_DATA")
    with pytest.raises(CoveyError, match=r"did you mean 'synthetic'.*set COVEY_DATA=/path/to/data"):
        load("sinthetic")
    with pytest.raises(CoveyError, match="no folder"):
        load("ml-100k", tmp_path / "nowhere")


def test_load_knows_three_kinds_of_names(tmp_path: Path) -> None:
    made = load("synthetic", options=Synthetic(users=10, items=20, mean_items=3))
    made.save(tmp_path / "made.npz")
    assert len(load(tmp_path / "made.npz")) == len(load(str(tmp_path / "made.npz"))) == len(made)
    assert len(load("mine", write(tmp_path, "mine", ROWS))) == 3


def test_load_filters_as_the_papers_do_unless_told_otherwise(tmp_path: Path) -> None:
    rows = "".join(f"{user},i{k}\n" for user in "abc" for k in range(5))
    write(tmp_path, "filmtrust", "user,item\n" + rows)
    assert len(load("filmtrust", tmp_path)) == 10  # the first line costs user a its fifth row
    assert len(load("filmtrust", tmp_path, Filter())) == 15


def test_filters_drop_the_first_line_then_items_then_users() -> None:
    d = Dataset("d", 4, 3, np.array([3, 0, 1, 1, 2, 2, 0]), np.array([0, 2, 2, 1, 2, 1, 0]))
    one = apply_filter(d, Filter(min_user=2, min_item=2, drop_first_line=True))
    # Without the first line item 0 has one row; without item 0 user 0 has one row.
    assert one.user_E.tolist() == [0, 0, 1, 1] and one.item_E.tolist() == [0, 1, 0, 1]
    assert one.users is not None and one.users.tolist() == ["1", "2"]
    assert one.items is not None and one.items.tolist() == ["2", "1"]
    assert apply_filter(d, Filter()) is d
    with pytest.raises(CoveyError, match=r"no interactions.*filter too strict"):
        apply_filter(d, Filter(min_user=99))


def test_a_core_is_what_is_left_when_nothing_has_to_go() -> None:
    d = Dataset("d", 5, 4, np.array([0, 0, 1, 1, 2, 2, 3, 4]), np.array([0, 1, 0, 1, 1, 2, 2, 3]))
    core = apply_filter(d, Filter(core=2))  # user 3 goes, then item 2, and only then user 2
    assert core.user_E.tolist() == [0, 0, 1, 1] and core.item_E.tolist() == [0, 1, 0, 1]


def test_a_filter_keeps_titles_and_times_aligned() -> None:
    d = generate(Synthetic(users=50, items=60, mean_items=5))
    kept = apply_filter(d, Filter(min_item=5))
    assert (
        kept.items is not None
        and kept.users is not None
        and kept.time_E is not None
        and d.time_E is not None
    )
    was = {(u, i): t for u, i, t in zip(d.user_E, d.item_E, d.time_E, strict=True)}
    for u, i, t in zip(kept.user_E, kept.item_E, kept.time_E, strict=True):
        assert was[int(kept.users[u]), int(kept.items[i])] == t
        assert kept.titles[i] == d.titles[int(kept.items[i])]


DATA = os.environ.get("COVEY_DATA")
KNOWN = {
    "ml-100k": (943, 1682, 100_000, True, True),
    "ml-1m": (6040, 3706, 1_000_209, False, True),
    "filmtrust": (1508, 2071, 35_497, False, False),
    "lastfm-2k": (1892, 12_523, 186_479, True, True),
    "amazon-beauty-bert4rec": (40_226, 54_542, 353_962, False, False),
    "amazon-sports-s3rec": (35_598, 18_357, 296_337, False, False),
    "yelp-s3rec": (30_431, 20_033, 316_354, False, False),
    "amazon-video-pfedrec": (8072, 11_830, 63_836, True, False),
    "amazon-office": (4905, 2420, 53_258, True, True),
    "amazon-cellphones-5core": (27_879, 10_429, 194_439, False, False),
    "amazon-beauty-s3rec": (22_363, 12_101, 198_502, False, False),
    "amazon-toys-s3rec": (19_412, 11_924, 167_597, False, False),
    "gowalla-lightgcn": (29_858, 40_981, 1_027_370, False, False),
    "yelp2018-lightgcn": (31_668, 38_048, 1_561_406, False, False),
}
PARTS = {  # rows to train, to validate and to test
    "gowalla-lightgcn": (810_128, 0, 217_242),
    "yelp2018-lightgcn": (1_237_259, 0, 324_147),
}
FILTERED = {
    ("filmtrust", DEFAULT_FILTERS["filmtrust"]): (1227, 2059, 34_888),
    ("lastfm-2k", DEFAULT_FILTERS["lastfm-2k"]): (1600, 12_454, 185_650),
    ("ml-1m", Filter(min_item=5)): (6040, 3416, 999_611),
}
DISTINCT = {"yelp-s3rec": 304_524, "lastfm-2k": 70_508}


def real(name: str) -> str:
    if not DATA:
        pytest.skip("COVEY_DATA is unset: the real datasets are not part of the project")
    if name not in folder.available(DATA):
        pytest.skip(f"COVEY_DATA has no {name}")
    return DATA


@pytest.mark.parametrize("name", KNOWN)
def test_a_real_dataset_has_the_known_counts(name: str) -> None:
    d = folder.read(name, real(name))
    assert (d.n_users, d.n_items, len(d), d.clock, bool(d.titles)) == KNOWN[name]
    assert (d.time_E is None) == (name == "filmtrust" or name in PARTS)
    if name in PARTS:
        assert d.part_E is not None and tuple(np.bincount(d.part_E)) == PARTS[name]


@pytest.mark.parametrize(("name", "filter"), FILTERED)
def test_a_filter_gives_the_figures_of_the_papers(name: str, filter: Filter) -> None:
    d = load(name, real(name), filter)
    assert (d.n_users, d.n_items, len(d)) == FILTERED[name, filter]


@pytest.mark.parametrize("name", DISTINCT)
def test_distinct_pairs_are_as_many_as_known(name: str) -> None:
    s = split(load(name, real(name)), SplitConfig("loo"))
    assert sum(len(part.values) for part in (s.train, s.valid, s.test)) == DISTINCT[name]

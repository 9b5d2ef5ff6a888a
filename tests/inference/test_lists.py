"""Lists, scores of pairs and similar items, for some items, for all users and in files."""

import csv
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from covey.core.errors import CoveyError
from covey.inference import writing
from covey.inference.writing import Choice, check_target, write

SMALL = {"users": 40, "items": 60, "mean_items": 8}
TITLED = [Choice("7", 'A "title", in two\nlines', 0.5), Choice("é", "", 0.25)]


@pytest.fixture(scope="module")
def fitted() -> covey.Recommender:
    return covey.fit("spectral", "synthetic", data=SMALL, model={"rank": 6})


def scores(fitted: covey.Recommender, user: str) -> dict[str, float]:
    everything = fitted.ranked(user, 60, filter_seen=False)[user]
    return {choice.item: choice.score for choice in everything}


def test_pairs_have_the_scores_of_the_lists(
    fitted: covey.Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, items = ["7", "3", "7", "39", "3"], ["1", "2", "59", "0", "2"]
    expected = [scores(fitted, user)[item] for user, item in zip(users, items)]
    monkeypatch.setattr("covey.inference.ranking.NUMBERS_AT_ONCE", 2 * 64 * 60)  # two users
    got = fitted.predict(users, items)
    assert got.shape == (5,) and got.tolist() == pytest.approx(expected, rel=1e-5)
    assert fitted.predict(7, items).tolist() == pytest.approx(
        [scores(fitted, "7")[item] for item in items], rel=1e-5
    )
    assert fitted.predict(users, 2)[1] == pytest.approx(fitted.predict("3", "2")[0], rel=1e-5)
    for wrong in (["1", "2"], ["nothing"] * 5):
        with pytest.raises(CoveyError, match=r"5 users and 2 items|no item 'nothing'"):
            fitted.predict(users, wrong)


def test_only_candidates_and_nothing_excluded(fitted: covey.Recommender) -> None:
    every = fitted.recommend("3", 20)["3"]
    some = every[10:20]
    assert fitted.recommend("3", candidates=some[::-1])["3"] == some
    assert fitted.recommend("3", 15, exclude=every[:5])["3"] == every[5:]
    assert fitted.recommend(3, 60, candidates=some, exclude=some[3:])["3"] == some[:3]
    new = fitted.recommend_new(["1", "2"], 60)
    assert fitted.recommend_new(["1", "2"], 60, candidates=new[5:9], exclude=[new[6]]) == [
        new[5], *new[7:9]
    ]  # fmt: skip
    with pytest.raises(CoveyError, match="no item 'none'"):
        fitted.recommend("3", candidates=["none"])


def test_unknown_items_are_skipped_with_a_warning(fitted: covey.Recommender) -> None:
    expected = fitted.recommend_new(["1", "2"])
    with pytest.warns(UserWarning, match=r"2 of 4 items of the new user .* left out: 'x', 'y'$"):
        assert fitted.recommend_new(["1", "x", "2", "y"]) == expected
    with pytest.warns(UserWarning, match="1 of 1 excluded items"):
        assert fitted.recommend("3", exclude=["x"]) == fitted.recommend("3")


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("fedmf", {"rounds": 30, "evaluate": {"every": 30}}),
        ("spectral", {"model": {"rank": 16}}),
        ("ease", {}),
        ("ease-sums", {}),
    ],
)
def test_items_with_the_same_users_are_similar(method: str, more: dict[str, Any]) -> None:
    """Items 0 and 1 always go together, like 2 and 3, and so on."""
    chance = np.random.default_rng(0)
    groups_N5 = chance.permuted(np.tile(np.arange(20), (80, 1)), axis=1)[:, :5]
    pairs = [(u, 2 * g + twin) for u, mine in enumerate(groups_N5) for g in mine for twin in (0, 1)]
    user_E, item_E = np.array(pairs).T
    own = np.arange(40) + 500
    data = covey.Dataset("twins", 80, 40, user_E, item_E, items=own)
    learned = covey.fit(method, data, **more)
    best = [learned.similar_items(int(item), 3)[0].item for item in own]
    assert sum(item - 500 == (at ^ 1) for at, item in enumerate(best)) >= 30
    assert all(item not in [c.item for c in learned.similar_items(item, 39)] for item in own[:3])


@pytest.mark.parametrize(
    ("method", "rounds"), [("popularity", None), ("popularity-private", 1), ("local", 1)]
)
def test_no_similar_items_without_shared_vectors(method: str, rounds: int | None) -> None:
    with pytest.raises(CoveyError, match="no vector of each item that all clients share"):
        covey.fit(method, data=SMALL, rounds=rounds).similar_items("1")


def test_ids_keep_the_type_of_the_table() -> None:
    pd = pytest.importorskip("pandas")
    numbers = [(7 + n // 6, 10**12 + n % 9) for n in range(90)]
    for kind in (int, "Int64", str):
        frame = pd.DataFrame(numbers, columns=["user", "item"]).astype(kind)
        frame.insert(0, "noise", "x")
        own: Any = str if kind is str else int
        library = covey.fit("ease", frame)
        for asked in (library.recommend(k=3), library.recommend([7, "8", np.int64(9)], k=3)):
            assert {type(user) for user in asked} == {own}
            assert {type(item) for items in asked.values() for item in items} == {own}
        assert {type(c.item) for c in library.similar_items(10**12)} == {own}
        assert type(library.recommend_new([10**12])[0]) is own


def test_all_users_in_a_frame_and_in_files(
    fitted: covey.Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas")
    frame = fitted.recommend(k=3, as_frame=True)
    assert frame["user"].unique().tolist() == fitted.users and len(frame) == 120
    monkeypatch.setattr(writing, "AT_ONCE", 50)
    rows = frame.values.tolist()
    assert fitted.recommend(k=3, out=tmp_path / "a.csv") == tmp_path / "a.csv"
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        head, *lines = csv.reader(file)
    assert head == list(frame.columns)
    assert [[u, i, int(r), float(s), t] for u, i, r, s, t in lines] == rows
    fitted.recommend(k=3, out=tmp_path / "a.jsonl")
    read = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert {one["user"]: [Choice(**c) for c in one["items"]] for one in read} == fitted.ranked(k=3)
    parquet = pytest.importorskip("pyarrow.parquet")
    fitted.recommend(k=3, out=tmp_path / "a.parquet")
    assert parquet.read_table(tmp_path / "a.parquet").to_pandas().values.tolist() == rows


def test_any_text_survives_a_file(fitted: covey.Recommender, tmp_path: Path) -> None:
    data = fitted.prepared.dataset
    write([("=1+1", TITLED)], tmp_path / "a.csv", data)
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file))[1] == ["=1+1", "7", "1", "0.5", TITLED[0].title]
    write([("a", TITLED)], tmp_path / "a.jsonl", data)
    (line,) = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["items"][1] == {"item": "é", "title": "", "score": 0.25}


def test_a_file_is_whole_or_not_there(fitted: covey.Recommender, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("before")

    def broken() -> Any:
        yield "1", TITLED
        raise CoveyError("half way")

    with pytest.raises(CoveyError, match="half way"):
        write(broken(), tmp_path / "a.csv", fitted.prepared.dataset)
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "before"
    with pytest.raises(CoveyError, match="cannot write"):
        fitted.recommend(out=tmp_path / "nowhere" / "a.csv")


def test_wrong_files_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.txt", "a", "metrics.jsonl", "runs/first/rounds.jsonl"):
        with pytest.raises(CoveyError, match=r"ends in \.csv, \.jsonl, \.parquet"):
            check_target(Path(name))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CoveyError, match=r"pip install 'covey\[tables\]'$"):
        check_target(Path("a.parquet"))


def test_no_warning_without_a_reason(fitted: covey.Recommender) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fitted.recommend([], k=3) == {}
        assert len(fitted.recommend(["3", 3, "3"], k=3)) == 1

"""The registry of public datasets, and the cache."""

import re
from pathlib import Path

import pytest

from covey import data
from covey.core.errors import CoveyError
from covey.data import DEFAULT_FILTERS, Dataset, Synthetic, cache, generate
from covey.data.public.formats import FORMS
from covey.data.public.registry import NAMES, SOURCES, Source, find


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_record_is_complete(source: Source) -> None:
    assert source.title and source.licence and source.rows and source.form in FORMS
    assert source.page.startswith("https://")
    assert not source.url or source.url.startswith("https://")
    assert not source.checksum or re.fullmatch(
        r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", source.checksum
    )
    assert cache.NAME.fullmatch(source.name)


def test_names_are_unique_and_cover_the_default_filters() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert set(DEFAULT_FILTERS) <= set(NAMES)


def test_a_wrong_name_gets_a_hint() -> None:
    with pytest.raises(
        CoveyError, match=r"no known dataset 'ml-100'; did you mean 'ml-100k'\?.*covey data import"
    ):
        find("ml-100")


def test_the_cache_is_where_it_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "own"))
    assert cache.root() == tmp_path / "own"
    monkeypatch.delenv("COVEY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.root() == tmp_path / "xdg" / "covey"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # does not count, says the standard
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.root() == tmp_path / ".cache" / "covey"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache.root() == tmp_path / "Library" / "Caches" / "covey"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache.root() == tmp_path / "local" / "covey"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COVEY_DATA", raising=False)
    made = generate(Synthetic(users=20, items=40, mean_items=5))
    dataset = Dataset(
        "mine", 20, 40, made.user_E, made.item_E, made.time_E, titles=made.titles, clock=True
    )
    cache.save(dataset)
    return dataset


def test_load_finds_what_the_cache_keeps(kept: Dataset) -> None:
    assert cache.names() == ["mine"]
    again = data.load("mine")
    assert again.titles == kept.titles and again.item_E.tolist() == kept.item_E.tolist()


def test_local_copies_come_before_the_cache(
    kept: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data" / "mine").mkdir(parents=True)
    (tmp_path / "data" / "mine" / "interactions.csv").write_text("user,item\na,x\nb,y\n")
    monkeypatch.setenv("COVEY_DATA", str(tmp_path / "data"))
    assert len(data.load("mine")) == 2


def test_a_missing_dataset_is_told_in_one_line(
    kept: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        CoveyError, match="'ml-1m' is not here yet; get it with covey data get ml-1m"
    ):
        data.load("ml-1m")
    with pytest.raises(
        CoveyError, match=r"no dataset 'mein'; did you mean 'mine'\?.*covey data list"
    ):
        data.load("mein")
    monkeypatch.setenv("COVEY_DATA", str(tmp_path))
    with pytest.raises(CoveyError, match="in the cache: mine"):
        data.load("other")


def test_a_name_cannot_leave_the_cache(kept: Dataset) -> None:
    for name in ("../up", "a/b", "", ".hidden", "x.npz"):
        with pytest.raises(CoveyError, match="cannot name a dataset"):
            cache.save(Dataset(name, 2, 2, kept.user_E, kept.item_E))

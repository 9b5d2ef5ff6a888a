"""The plans of papers are found in a checkout or a named folder, not in an installed copy."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from command import Covey, expect_line
from covey.study.papers import folder
from covey.study.papers.folder import papers, papers_folder
from reproduce_tables import TABLE

ROOT = Path(__file__).parents[2]
MISSING = r"plans of the papers are not installed.*checkout.*--papers DIR$"


def checkout(root: Path, project: str = "covey") -> Path:
    """A project of that name with one paper, and a folder deep inside it."""
    (root / "papers" / "own").mkdir(parents=True)
    (root / "papers" / "own" / "two.toml").write_text(TABLE)
    (root / "pyproject.toml").write_text(f'[project]\nname = "{project}"\n')
    (root / "src" / "deep").mkdir(parents=True)
    return root / "src" / "deep"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if covey were in a site-packages."""
    place = tmp_path / "lib" / "site-packages" / "covey"
    monkeypatch.setattr(folder, "resources", SimpleNamespace(files=lambda name: place))


def test_of_the_source_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert papers_folder() == ROOT / "papers" and "pfedrec" in papers()


def test_of_the_checkout_around_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout(tmp_path))
    assert papers() == {"own": tmp_path / "papers" / "own"}


@pytest.mark.parametrize("text", ['[project]\nname = "other"\n', "project = 1\n", "no TOML", None])
def test_another_project_with_such_a_folder_is_none(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: None
) -> None:
    monkeypatch.chdir(checkout(tmp_path))
    (tmp_path / "pyproject.toml").unlink()
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    assert papers_folder() is None


def test_an_installed_copy_asks_for_the_folder(
    covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: None
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["reproduce", "covey", "demo"], ["reproduce"], ["list", "papers"]):
        expect_line(covey(*words), MISSING)
    assert not list(tmp_path.iterdir())


def test_a_named_folder(
    covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: None
) -> None:
    monkeypatch.chdir(tmp_path)
    checkout(tmp_path / "there", "other")
    words = "--papers", tmp_path / "there" / "papers"
    assert [row["name"] for row in json.loads(covey("list", "papers", *words, "--json").out)] == [
        "own two"
    ]
    assert "nothing of this has been run yet" in covey("reproduce", "own", "--done", *words).err
    expect_line(
        covey("reproduce", "pfedrec", *words), "there is no paper 'pfedrec'; there are own, or give"
    )
    expect_line(covey("reproduce", *words), "name a paper; there are own$")
    expect_line(
        covey("reproduce", "own", "--papers", "nowhere"),
        "there is no folder nowhere; --papers takes one",
    )
    expect_line(covey("list", "presets", *words), "--papers is for covey list papers")


def test_a_path_needs_no_folder_of_papers(
    covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: None
) -> None:
    monkeypatch.chdir(tmp_path)
    checkout(tmp_path / "there", "other")
    said = covey("reproduce", "there/papers/own", "--quick", "--jobs", "1", "--json")
    assert said.code == 0 and json.loads(said.out)[0]["paper"] == "own"
    assert (tmp_path / "results" / "own-two-quick.json").exists()

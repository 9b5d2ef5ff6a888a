"""`covey reproduce` as a command: the plans of the papers are valid, bad files are refused."""

import json
from pathlib import Path

import pytest

from covey.cli import main
from covey.core.errors import CoveyError
from covey.study.papers.claims import is_number
from covey.study.papers.docs import render
from covey.study.papers.folder import papers
from covey.study.papers.plan import seeds_of, tables
from covey.study.papers.settings import configs
from covey.study.papers.terminal import markdown
from reproduce_tables import TABLE, made


@pytest.mark.parametrize("paper", papers())
def test_every_cell_of_a_shipped_paper_is_a_configuration(paper: str) -> None:
    for one in tables(paper):
        for row, column in one.cells():
            first = configs(one, row, column)[0]
            epochs = getattr(first.part("pooled"), "epochs", first.evaluate.every)
            assert first.evaluate.every <= epochs, (
                f"{one.name}, {row.label} in {column.label} is never evaluated"
            )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('metrics = ["hit@10", ', 'metric = ["hit@10", '),
            r"has no option 'metric'; did you mean 'metrics'\?",
        ),
        (('title = "Two rows"\n', ""), "needs 'title'"),
        (('label = "popularity"', 'label = "FedMF"'), "two rows named 'FedMF'"),
        (('worse = "popularity"', 'worse = "popularly"'), "claims something of 'popularly'"),
        (('columns = ["tiny"]', 'columns = ["huge"]'), "claims something at 'huge'"),
        (("tiny = {", "huge = {"), "names column 'huge'"),
        (("[[row]]\n", "[[rows]]\n"), "has no"),
    ],
)
def test_bad_files(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match=message):
        made(tmp_path, TABLE.replace(*change))


def test_bad_cells(tmp_path: Path) -> None:
    for change, message in (
        (('method = "fedmf"', 'method = "fedfm"'), r"no method 'fedfm'; did you mean 'fedmf'\?"),
        (('"ndcg@10"]', '"mrr@10"]'), "does not measure mrr@10"),
        (('presets = ["loo-full"]', 'presets = ["loo-full"]\ntuning = "nowhere"'), "covey tune"),
    ):
        one = made(tmp_path, TABLE.replace(*change))
        with pytest.raises(CoveyError, match=message):
            configs(one, one.rows[0], one.columns[0])


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In processes of their own, as users run it; killed half-way, it goes on."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "two.toml").write_text(TABLE)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("a\n<!-- table:own-two -->\nold\n<!-- end -->\nb\n")
    monkeypatch.chdir(tmp_path)
    assert main.main(["reproduce", "own", "two", "--docs", "docs"]) == 0
    said = capsys.readouterr()
    assert "FedMF" in said.out and "runs/papers/own.html" in said.err and "left" in said.err
    assert all(len(line) <= 80 for line in said.out.splitlines())
    stored = json.loads((tmp_path / "results" / "own-two.json").read_text())
    page = (tmp_path / "docs" / "page.md").read_text()
    assert markdown(stored) in page and "old" not in page
    assert render(tmp_path / "docs", tmp_path / "results") == []
    assert main.main(["reproduce", "--docs", "docs"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce"], "name a paper; there are beyond"),
        (["reproduce", "nopaper"], "there is no paper 'nopaper'; there are beyond"),
        (["reproduce", "pfedrec", "table99"], "pfedrec has no table 'table99'; there are table1"),
        (
            ["reproduce", "pfedrec", "--dataset", "netflix"],
            "no column is of dataset 'netflix'; there are ml-100k",
        ),
        (["reproduce", "pfedrec", "table1"], "covey data get ml-100k"),
        (["reproduce", "covey", "demo", "--jobs", "0"], "jobs = 0; at least 1"),
    ],
)
def test_bad_commands(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COVEY_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main.main(words) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))


def test_done_where_nothing_was_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["reproduce", "covey", "demo", "--done"]) == 2
    said = capsys.readouterr()
    assert "nothing of this has been run yet in runs/papers; leave out --done to run it" in said.err
    assert not said.out and not list(tmp_path.iterdir())


def test_done_needs_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COVEY_DATA", raising=False)
    record = Path(__file__).parents[2] / "results" / "pfedrec-table1.json"
    copy = tmp_path / "results" / record.name
    copy.parent.mkdir()
    copy.write_bytes(record.read_bytes())
    assert main.main(["reproduce", "pfedrec", "--done", "--keep"]) == 0
    assert "PFedRec" in capsys.readouterr().out and copy.read_bytes() == record.read_bytes()


@pytest.mark.parametrize("paper", papers())
def test_claims_of_shipped_papers_compare_equal_seeds(paper: str) -> None:
    for one in tables(paper):
        rows = {row.label: row for row in one.rows}
        columns = {column.label: column for column in one.columns}
        for claim in one.claims:
            for column in claim.columns:
                sides = (claim.better, column), (claim.worse, claim.against or column)
                many = {
                    seeds_of(one, rows[row], columns[at]) for row, at in sides if not is_number(row)
                }
                assert len(many) == 1, (one.name, claim.text)

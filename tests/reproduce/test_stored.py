"""Stored records: figures have the settings of today's plans, and are kept without their runs."""

import json
from pathlib import Path

import pytest

from covey.study.papers.plan import Scope, tables
from covey.study.papers.record import reproduce, store
from covey.study.papers.resume import settings
from covey.study.papers.settings import configs

RESULTS = Path(__file__).parents[2] / "results"
RECORDS = sorted(
    path for path in RESULTS.glob("*.json") if '"claims"' in path.read_text(encoding="utf-8")
)
# Its defaults of then stand in the table's file today.
RENAMED = {("covey-ml-1m-ratio", "spectral, 4 sums of rank 64")}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_stored_cell_has_the_settings_of_its_plan(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    (table,) = tables(record["paper"], [record["table"]])
    planned = {
        (row.label, column.label): configs(table, row, column)[0].tree
        for row, column in table.cells()
    }
    for row in record["rows"]:
        for column, cell in row["cells"].items():
            if cell["figures"] and (path.stem, row["label"]) not in RENAMED:
                now = planned[row["label"], column]
                assert settings(cell["config"]) == settings(now), (
                    f"{row['label']}, {column}: run it again"
                )


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_stored_record_is_kept_without_its_runs_and_data(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COVEY_DATA", raising=False)
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    old = json.loads(copy.read_text(encoding="utf-8"))
    wanted = tables(old["paper"], [old["table"]])
    datasets = sorted({column["dataset"] for column in old["columns"]}) if old.get("part") else ()
    scope = Scope(datasets=tuple(datasets))
    (made,) = reproduce(
        wanted, tmp_path / "runs", scope, 1, lambda line: None, begin=False, stored=tmp_path
    )
    assert [row["label"] for row in made["rows"]] == [row["label"] for row in old["rows"]]
    assert store(made, tmp_path) == copy
    assert copy.read_bytes() == path.read_bytes()

"""Records that are stored: every figure is of the settings that its row and column have today."""

import json
from pathlib import Path

import pytest

from covey.run.config.tree import Tree
from covey.study.papers.plan import configs, tables

RESULTS = Path(__file__).parents[2] / "results"
RECORDS = sorted(path for path in RESULTS.glob("*.json") if '"claims"' in path.read_text(encoding="utf-8"))
LABELS = ("engine", "title", "paper", "method", "preset")  # say where, and what it is called
# Its defaults of then stand in the table's file today.
RENAMED = {("covey-ml-1m-ratio", "spectral, 4 sums of rank 64")}


def settings(tree: Tree) -> str:
    return json.dumps({k: v for k, v in tree.items() if k not in LABELS}, sort_keys=True)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_stored_cell_has_the_settings_of_its_plan(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    (table,) = tables(record["paper"], [record["table"]])
    planned = {(row.label, column.label): configs(table, row, column)[0].tree for row, column in table.cells()}
    for row in record["rows"]:
        for column, cell in row["cells"].items():
            if cell["figures"] and (path.stem, row["label"]) not in RENAMED:
                now = planned[row["label"], column]
                assert settings(cell["config"]) == settings(now), f"{row['label']}, {column}: run it again"

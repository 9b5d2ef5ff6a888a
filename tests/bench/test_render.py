"""The performance page shows what results/ holds."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from render import rendered, tables  # noqa: E402


def test_the_pages_are_rendered_from_the_stored_results() -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        page = path.read_text()
        assert rendered(page, ROOT / "results") == page, f"run python bench/render.py: {path.name}"


def test_a_page_may_show_one_of_them() -> None:
    page = rendered("a\n<!-- bench:bench-cofedrec -->\nold\n<!-- end -->\nb\n", ROOT / "results")
    assert page.startswith("a\n<!-- bench:bench-cofedrec -->\n`python bench/bench_cofedrec.py`")
    assert (
        "| exact |" in page
        and "old" not in page
        and "PDC-FRS" not in page
        and page.endswith("<!-- end -->\nb\n")
    )


def test_seconds_on_a_gpu_as_stored(tmp_path: Path) -> None:
    row = {"seconds": [1.0, 0.6, 0.7], "median": 0.67, "at most": 0.8, "reached": True, "gib": 9.1}
    found = {"commit": "abc", "machine": "a GPU", "cofedrec ml-100k": row}
    (tmp_path / "bench-cofedrec-cuda.json").write_text(json.dumps(found))
    assert "| cofedrec ml-100k | 0.67 | 0.8 | 9.1 |" in tables(tmp_path)
    side = {"held": [5e6, 2e7], "cpu_seconds": [1.0, 2.0, 3.0], "peak": 1.5e9}
    stored = {
        "commit": "abc",
        "data": {"ml-100k": {"whole": side | {"held": [2e8, 2e8]}, "rows": side}},
    }
    (tmp_path / "bench-tables.json").write_text(json.dumps(stored))
    assert "| ml-100k | 2 | 200 | 20 | 1.50 | 1.50 | 2.00 | 2.00 |" in tables(
        tmp_path, "bench-tables"
    )


def test_what_is_not_stored_leaves_no_hole(tmp_path: Path) -> None:
    page = "<!-- bench:bench-tables -->\n<!-- end -->\n"
    assert rendered(page, tmp_path) == page


def test_every_workload_is_in_the_table() -> None:
    text = tables(ROOT / "results")
    for what in ("PFedRec round", "Beauty-sized", "full-rank evaluation", "a million users: a sum"):
        assert what in text

"""The performance page shows what results/ holds."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from render import rendered, tables  # noqa: E402


def test_the_page_is_rendered_from_the_stored_results() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    assert rendered(page, ROOT / "results") == page, "run python bench/render.py"


def test_every_workload_is_in_the_table() -> None:
    text = tables(ROOT / "results")
    for what in ("PFedRec round", "Beauty-sized", "full-rank evaluation", "ms a round"):
        assert what in text

"""The notebook of first steps: its cells run, and what they show is short and self-contained."""

import ast
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "first-steps.ipynb"


def shown(code: str, names: dict[str, Any]) -> str:
    """Runs a cell; returns its last expression as a notebook would show it."""
    *first, last = ast.parse(code).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(first, []), PAGE.name, "exec"), names)
    value = eval(compile(ast.Expression(last.value), PAGE.name, "eval"), names)
    html = getattr(value, "_repr_html_", None)
    return html() if html else repr(value)


def test_its_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    cells = json.loads(PAGE.read_text(encoding="utf-8"))["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(cells) == 10 and len(codes) == 8
    assert not any(cell.get("outputs") for cell in cells)  # figures come from running it
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    pages = [shown(code, names) for code in codes]
    assert all(0 < len(page) < 5000 for page in pages)
    assert not any(re.search(r"https?://|<script", page) for page in pages)
    cards = [ElementTree.fromstring(page) for page in pages if "<svg" in page]
    for card in cards:
        floor, ours, *_ = [float(bar.attrib["width"]) for bar in card.iter("rect")]
        assert ours > 1.5 * floor
    assert len(cards) == 2
    assert re.fullmatch(r"\{1000: \[(\d+, ){2}\d+\], 1001: \[(\d+, ){2}\d+\]\}", pages[6])
    assert "9000" in pages[7] and (tmp_path / "loans.csv").exists()

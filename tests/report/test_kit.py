"""The rendering kit: it alone writes pages, pictures and tables, and no labels overlap."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from rich.cells import cell_len

import covey
from covey.study.render.markup import page
from covey.study.render.svg import Frame, extent
from covey.study.render.tables import Screen, framed_table, markdown, open_table
from covey.study.render.units import NOTHING, brief, change, cut, fixed, points, size

SOURCE = Path(covey.__file__).parent


@pytest.mark.parametrize("mark", ["<!doctype", "viewBox", "<style", "---:", "Console(file"])
def test_pages_pictures_and_tables_are_written_in_one_place(mark: str) -> None:
    places = [path for path in SOURCE.rglob("*.py") if mark in path.read_text(encoding="utf-8")]
    found = [path.relative_to(SOURCE) for path in places if "testing" not in path.parts]
    kit = Path("study/render")
    assert [path for path in found if kit not in path.parents] == []


def test_markdown_escapes_and_aligns() -> None:
    text = markdown(["", "on", "a|b"], [["x*y", "<b>", 1.5], ["two\nlines", "`", "–"]], left=2)
    assert text.splitlines() == [
        r"|  | on | a\|b |",
        "| --- | --- | ---: |",
        r"| x\*y | &lt;b&gt; | 1.5 |",
        r"| two lines | \` | – |",
    ]


def test_a_screen_keeps_its_width_and_cuts_nothing_off() -> None:
    screen = Screen()
    long = "a-name-without-any-place-to-break-" * 4
    for table in (open_table("", "figure", title=long), framed_table("t", "name", "figure")):
        table.add_row(long, "0.1430")
        screen.show(table)
    screen.show("[red]names stand as they are[/red] :smile:")
    text = str(screen)
    assert max(cell_len(line) for line in text.splitlines()) <= 80 and "…" not in text
    assert "[red]" in text and ":smile:" in text
    screen.whole("word " * 40 + "end")
    assert ("word " * 40 + "end") in str(screen)


def test_a_page_fetches_nothing_and_has_its_parts() -> None:
    text = page("a < b", "1 < 2")
    assert "<h1>a &lt; b</h1>" in text and "1 &lt; 2" in text
    assert text.count("<style>") == text.count("<script>") == 1
    assert not re.search(r"https?://|@import|url\(|</meta>|</input>", text)


@pytest.mark.parametrize(
    "values", [[1, 10, 30, 60, 100], list(range(1, 101)), [1, 2], [5], [0.001, 0.5, 16]]
)
def test_numbers_at_an_axis_do_not_touch(values: list[float]) -> None:
    frame = Frame()
    x = frame.across(min(values), max(values))
    drawn = frame.numbers(x, values, "{:g}".format)
    shown = [
        (float(at), text) for at, text in re.findall(r'<text x="([\d.]+)"[^>]*>([^<]+)<', drawn)
    ]
    assert shown[-1][1] == f"{values[-1]:g}"
    for (left, name), (right, other) in pairwise(shown):
        assert right - left > 5.5 * (len(name) + len(other)) / 2


def test_names_of_levels_keep_their_distance_and_stay_inside() -> None:
    frame = Frame()
    marks = {f"reference {i} (ceiling)": 0.001 * i for i in range(4)} | {
        "none (floor)": float("nan")
    }
    drawn = frame.marks(frame.up(0, 1), marks)
    heights = sorted(float(y) for y in re.findall(r'<text [^>]*y="([\d.]+)"', drawn))
    assert len(heights) == 8 and heights[-1] <= frame.height
    assert all(low - high > 10 for high, low in pairwise(heights))


def test_an_extent_begins_at_zero_unless_all_is_far_from_it() -> None:
    assert extent([0.1, 0.9])[0] == 0
    low, high = extent([0.90, 0.92])
    assert 0.8 < low < 0.90 and 0.92 < high < 1
    assert extent([float("nan")]) == (0.0, 1.12)


def test_units() -> None:
    assert [fixed(v) for v in (None, float("nan"), 0.14302)] == [NOTHING, NOTHING, "0.1430"]
    assert [brief(v) for v in ("0.1430 ± 0.0021", "12.1 ± 1.5")] == ["0.1430±.0021", "12.1±1.5"]
    assert [change(v) for v in (-0.171, 0.001, -0.001, 0.4)] == ["-17%", "0%", "0%", "+40%"]
    assert [size(v) for v in (None, 999, 999.6, 2.5e9)] == [NOTHING, "999 B", "1 kB", "2.5 GB"]
    assert cut("fedmf", 5) == "fedmf" and cut("pfedrec", 5) == "pfed…"
    found = points([(2, 1.0), (1, 0.5), (3, 9.0), (2, 3.0), (1, 0.5), (3, None)], 2)
    assert [(p.round, p.mean, p.low, p.high) for p in found] == [
        (1, 0.5, 0.5, 0.5),
        (2, 2.0, 1.0, 3.0),
    ]

"""The page of a run: whole, self-contained, escaped, and right about the figures."""

import json
import math
import re
import time
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from covey.core.errors import CoveyError
from covey.study.render.charts import MOST_POINTS, Entry, strip, thinned
from covey.study.render.markup import Html, tag
from covey.study.render.svg import ticks
from covey.study.render.units import Point, Stat
from covey.study.report.data import read_settings
from covey.study.report.items import map_of, principal
from report_runs import EVIL, ITEMS, call, dataset, lengthen, make

HEADINGS = [
    "Results on the test",
    "Learning curves",
    "Time and traffic",
    "What left the device",
    "By activity of the users",
    "Item map",
    "Recommendations",
    "Configuration",
]
VOID = {"meta", "input"}


class Reader(HTMLParser):
    """Headings, elements and attributes; complains about tags that do not close."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.headings: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    data = dataset(folder / "tales.npz")
    for seed in (0, 1):
        make(folder / f"fedmf-{seed}", data, seed=seed)
    make(folder / "ease", data, "ease")
    return folder


@pytest.fixture(scope="module")
def page(place: Path) -> str:
    assert call("report", place / "fedmf-0") == 0
    return (place / "fedmf-0" / "report.html").read_text(encoding="utf-8")


def test_the_page_has_its_sections(page: str) -> None:
    reader = Reader(page)
    assert reader.headings == HEADINGS
    assert page.startswith("<!doctype html>")


def test_every_picture_says_what_it_shows(page: str) -> None:
    pictures = re.findall(r'<svg [^>]*aria-label="([^"]*)".*?</svg>', page, re.DOTALL)
    metrics = ("recall@5", "ndcg@5")
    shown = [f"{metric} on the test set, with floor and ceiling" for metric in metrics]
    shown += [f"{metric} over the rounds" for metric in metrics]
    shown += [f"{what} per round, round by round" for what in ("upload", "download", "seconds")]
    shown.append("item map of fedmf")
    assert sorted(pictures) == sorted(shown) and page.count("<svg") == len(shown)


def test_axes_have_numbers(page: str) -> None:
    curves = re.search(r'<svg [^>]*aria-label="ndcg@5 over the rounds".*?</svg>', page, re.DOTALL)
    assert curves and "&lt;" not in curves[0]  # what was drawn was not escaped
    numbers = re.findall(r'<text [^>]*class="tick">([^<]+)</text>', curves[0])
    assert {"0", "1", "3", "round"} <= set(numbers) and len(numbers) >= 8
    assert curves[0].count('class="mark"') == 3 and ">floor</text>" in curves[0]


def test_nothing_is_fetched(page: str) -> None:
    reader = Reader(page)
    assert "default-src 'none'" in page
    assert not re.search(r"https?://|//\w+\.\w+/|@import|url\(", page.replace(EVIL, ""))
    assert not {"src", "href", "xlink:href"} & {name for name, _ in reader.attributes}
    assert not {"link", "img", "iframe", "object"} & set(reader.seen)


def test_titles_are_escaped(page: str) -> None:
    reader = Reader(page)
    assert reader.seen["script"] == 1
    assert "<img" not in page and "<script>document.title" not in page
    assert ("data-t", EVIL) in reader.attributes
    assert not [name for name, _ in reader.attributes if name.startswith("on")]


def test_own_names_are_escaped(place: Path, tmp_path: Path) -> None:
    folder = make(tmp_path / "<b>run<i>", place / "tales.npz")
    done = json.loads((folder / "result.json").read_text())
    done["config"]["title"], done["method"] = EVIL, "<u>mine"
    done["ledger"][0]["what"] = done["dataset"]["name"] = EVIL
    (folder / "result.json").write_text(json.dumps(done))
    assert call("report", folder, "--out", tmp_path / "r.html") == 0
    seen = Reader((tmp_path / "r.html").read_text()).seen
    assert seen["script"] == 1 and not {"b", "i", "u", "img"} - {"b"} & set(seen)


def test_figures_are_those_of_the_result(place: Path, page: str) -> None:
    done = json.loads((place / "fedmf-0" / "result.json").read_text())
    for figures in (done["test"], done["floor"]["popularity"], done["ceiling"]["ease"]):
        for value in figures.values():
            assert f"{value:.4f}" in page
    assert f"{done['round']} of {done['rounds']}" in page
    assert page.count("(selected)") == 4  # validation and test, two metrics


def test_what_goes_without_guarantee_is_said(page: str) -> None:
    assert re.search(r"Without any guarantee: 1 of 1 \([\d.]+ \w+\)", page)
    assert '<span class="badge bad">no guarantee</span>' in page
    ledger = page[page.index('<table class="ledger">') :]
    heads, cells = (
        re.findall(rf"<{kind}\b[^>]*>(.*?)</{kind}>", ledger)[:7] for kind in ("th", "td")
    )
    shown = dict(zip(heads, cells, strict=True))
    assert shown["field"] == "<code>update/items</code>" and shown["exchange"] == "train"
    assert "no guarantee" in shown["total for a user"] and shown["times per user"] == "3"
    method, study = page.split("Sent for evaluation only")
    assert (
        "update/items" in method
        and "evaluate/test/recall@5" in study
        and "evaluate/test" not in method
    )


def test_spread_over_seeds(place: Path, tmp_path: Path) -> None:
    folders = [place / "fedmf-0", place / "fedmf-1"]
    assert call("report", *folders, "--out", tmp_path / "r.html") == 0
    values = [json.loads((f / "result.json").read_text())["test"]["ndcg@5"] for f in folders]
    spread = abs(values[0] - values[1]) / math.sqrt(2)
    assert f"{sum(values) / 2:.4f} ± {spread:.4f}" in (tmp_path / "r.html").read_text()


def test_a_pooled_run_has_a_page(place: Path) -> None:
    assert call("report", place / "ease") == 0
    page = (place / "ease" / "report.html").read_text()
    assert "collects the interactions of all users" in page
    assert not {"Learning curves", "Item map", "Recommendations"} & set(Reader(page).headings)


def test_a_ceiling_is_no_bound(place: Path, tmp_path: Path) -> None:
    folder = make(tmp_path / "run", place / "tales.npz")
    done = json.loads((folder / "result.json").read_text())
    done["test"] |= {k: v + 0.1 for k, v in done["ceiling"]["ease"].items()}
    (folder / "result.json").write_text(json.dumps(done))
    assert call("report", folder) == 0
    page = (folder / "report.html").read_text()
    assert (
        "; above " in page and "which sees all users&#x27; data: a reference, not a bound)." in page
    )
    assert "ease, train on pooled data is a reference, not a bound; above it: fedmf." in page


def test_below_the_ceiling_nothing_is_said(place: Path, tmp_path: Path) -> None:
    folder = make(tmp_path / "run", place / "tales.npz")
    done = json.loads((folder / "result.json").read_text())
    done["test"] |= {k: v - 0.1 for k, v in done["ceiling"]["ease"].items()}
    (folder / "result.json").write_text(json.dumps(done))
    assert call("report", folder) == 0
    page = (folder / "report.html").read_text()
    assert "not a bound" not in page and "validation items" not in page


def test_a_moved_dataset_leaves_numbers(place: Path, tmp_path: Path) -> None:
    folder = make(tmp_path / "run", dataset(tmp_path / "gone.npz"))
    (tmp_path / "gone.npz").unlink()
    assert call("report", folder) == 0
    page = (folder / "report.html").read_text()
    assert "Titles are missing: no file" in page and 'data-t="item 29"' in page
    assert "Recommendations" not in Reader(page).headings


def test_missing_figures_are_dashes(place: Path, tmp_path: Path) -> None:
    folder = make(tmp_path / "run", place / "tales.npz")
    done = json.loads((folder / "result.json").read_text())
    for figures in (done["test"], done["floor"]["popularity"], done["ceiling"]["ease"]):
        figures["recall@5"] = figures["recall@5/light"] = math.nan
    (folder / "result.json").write_text(json.dumps(done))
    assert call("report", folder) == 0
    page = (folder / "report.html").read_text()
    Reader(page)
    assert "–" in page and ">nan" not in page and '"nan' not in page


def test_a_long_run_of_a_large_catalogue_is_small_and_quick(tmp_path: Path) -> None:
    folder = make(
        tmp_path / "run", dataset(tmp_path / "d.npz", 4000), run={"rounds": 1, "ceilings": []}
    )
    lengthen(folder, 100)
    began = time.perf_counter()
    assert call("report", folder) == 0
    assert time.perf_counter() - began < 10
    page = (folder / "report.html").read_text()
    assert 200_000 < len(page.encode()) < 1_200_000
    assert page.count('class="dot item"') == 1500 and "1,500 most popular of 4,000" in page


def test_the_map_shows_the_main_directions(place: Path) -> None:
    torch.manual_seed(0)
    rows = torch.randn(50, 6, dtype=torch.float64) * torch.tensor(
        [9, 4, 1, 1, 1, 1.0], dtype=torch.float64
    )
    spots, share = principal(rows)
    values = torch.linalg.eigvalsh(torch.cov(rows.T)).flip(0)
    assert torch.allclose(spots.var(dim=0), values[:2])
    assert share == pytest.approx(float(values[:2].sum() / values.sum()))
    drawn = map_of(read_settings([place / "fedmf-0"])[0].runs[0])
    assert drawn is not None and len(drawn.spots) == ITEMS
    largest = max(spot.radius for spot in drawn.spots)
    assert drawn.spots[0].title == EVIL and drawn.spots[0].radius == largest  # everybody has it


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("result.json", "{", "damaged"),
        ("result.json", "[]", "damaged"),
        ("result.json", '{"covey": "9"}', "another version"),
        ("result.json", None, "covey resume"),
        ("metrics.jsonl", "{", "damaged"),
        ("metrics.jsonl", "3", "damaged"),
    ],
)
def test_bad_folders(
    place: Path, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    folder = make(tmp_path / "run", place / "tales.npz")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(CoveyError, match=message):
        call("report", folder)
    assert not (folder / "report.html").exists()


def test_other_mistakes(place: Path, tmp_path: Path) -> None:
    run = place / "fedmf-0"
    with pytest.raises(CoveyError, match="no run folder"):
        call("report", tmp_path / "nothing")
    with pytest.raises(CoveyError, match="start one with covey run"):
        call("report", tmp_path)
    with pytest.raises(CoveyError, match="covey compare"):
        call("report", run, place / "ease")
    with pytest.raises(CoveyError, match=r"\.html"):
        call("report", run, "--out", run / "result.json")
    with pytest.raises(CoveyError, match="cannot write"):
        call("report", run, "--out", tmp_path / "no" / "r.html")
    assert not list(tmp_path.iterdir())


def test_markup() -> None:
    assert (
        tag("a", "<&\"'", data_t='"', hidden=None) == '<a data-t="&quot;">&lt;&amp;&quot;&#x27;</a>'
    )
    assert tag("p", Html("<b>"), 1.5, None) == "<p><b>1.5</p>"


def test_thinned_curves_keep_what_matters() -> None:
    points = [Point(r, 0.1, 0.1, 0.1) for r in range(1, 1002)]
    kept = [p.round for p in thinned(points, 500)]
    assert len(kept) <= MOST_POINTS + 2 and {1, 500, 1001} <= set(kept)
    assert thinned([]) == [] and len(thinned(points[:3])) == 3


@pytest.mark.parametrize("high", [1e-9, 0.0031, 0.41, 1.0, 7, 1234.0])
def test_ticks(high: float) -> None:
    found = ticks(high)
    assert 3 <= len(found) <= 8 and found[0] == 0 and found[-1] <= high * (1 + 1e-9)


def test_figures_of_nothing() -> None:
    assert ticks(0) == ticks(math.nan) == ticks(math.inf) == [0.0]
    assert "–" in strip("m", [Entry("a", Stat.of([math.nan]), 0)], {"floor": math.nan})

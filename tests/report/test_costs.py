"""Time and traffic of every round on the page, from `rounds.jsonl`; without it, averages."""

import json
import re
from pathlib import Path

import pytest

from covey.core.errors import CoveyError
from covey.study.render.charts import Line, spent
from covey.study.render.units import Point, seconds, size
from covey.study.report.costs import per_round
from covey.study.report.data import read_settings
from report_runs import call, dataset, make
from rounds import rows

CAPTIONS = ("seconds per round", "upload per round", "download per round")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("costs")
    data = dataset(place / "tales.npz")
    for seed in (0, 1):
        make(place / f"fedmf-{seed}", data, seed=seed, run={"cohort": 9})
    make(place / "pfedrec", data, "pfedrec")
    make(place / "popularity", data, "popularity")
    return place


def write(folder: Path, changed: list[dict[str, object]]) -> None:
    (folder / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))


def test_each_round_is_on_the_page(place: Path, tmp_path: Path) -> None:
    folder = place / "fedmf-0"
    assert call("report", folder, "--out", tmp_path / "r.html") == 0
    page = (tmp_path / "r.html").read_text()
    assert all(f"<figcaption>{caption}</figcaption>" in page for caption in CAPTIONS)
    for row in rows(folder)[1:]:
        for value in (seconds(row["seconds"]), size(row["up_bytes"]), size(row["down_bytes"])):
            assert f'data-t="fedmf, round {row["round"]}: {value}"' in page


def test_methods_side_by_side(place: Path, tmp_path: Path) -> None:
    folders = [place / name for name in ("fedmf-0", "fedmf-1", "pfedrec", "popularity")]
    assert call("compare", *folders, "--out", tmp_path / "c.html") == 0
    page = (tmp_path / "c.html").read_text()
    ups = [rows(folder)[2]["up_bytes"] for folder in folders[:2]]
    assert f'data-t="fedmf, round 2: {size(sum(ups) / 2)}"' in page  # a mean over seeds
    assert 'data-t="pfedrec, round 2: ' in page and 'data-t="popularity, round' not in page


def test_figures_of_a_client_and_of_a_round(place: Path) -> None:
    group = read_settings([place / "fedmf-0"])[0].groups[0]
    found = rows(place / "fedmf-0")[1:]
    assert (
        sum(row["clients"] for row in found) == 24
    )  # 9, 9 and the rest of the pass, which cohort x rounds is not
    assert group.each("up") == pytest.approx(sum(row["up_bytes"] for row in found) / 24)
    assert group.round_seconds == pytest.approx(sum(row["seconds"] for row in found) / 3)
    assert group.round_seconds < group.seconds / 3


def test_only_rounds_that_all_seeds_took(place: Path) -> None:
    group = read_settings([place / "fedmf-0", place / "fedmf-1"])[0].groups[0]
    values = {run.seed: {row["round"]: row["seconds"] for row in run.spent} for run in group.runs}
    assert [p.round for p in per_round(group, "seconds")] == [1, 2, 3]
    low, high = sorted((values[0][3], values[1][3]))
    assert per_round(group, "seconds")[2] == Point(3, pytest.approx((low + high) / 2), low, high)


def test_a_folder_of_an_older_version(place: Path, tmp_path: Path) -> None:
    folder = make(tmp_path / "old", place / "tales.npz", run={"cohort": 9})
    (folder / "rounds.jsonl").unlink()
    assert call("report", folder) == 0
    page = (folder / "report.html").read_text()
    assert "Time and traffic" in page
    assert not any(f"<figcaption>{caption}<" in page for caption in CAPTIONS)
    group = read_settings([folder])[0].groups[0]
    assert group.round_seconds == pytest.approx(group.seconds / 3)


def test_enrolment_is_named(place: Path, tmp_path: Path) -> None:
    folder = make(tmp_path / "run", place / "tales.npz")
    assert call("report", folder) == 0
    assert "when clients enrol" not in (folder / "report.html").read_text()  # nothing is sent
    changed = rows(folder)
    changed[0] |= {"up_bytes": 2500, "down_bytes": 0}
    write(folder, changed)
    assert call("report", folder) == 0
    said = "Enrolment, before the first round, sends fedmf: 2.5 kB up."
    assert said in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("content", "message"), [("{", "damaged"), ('{"round": 1}', "another version")]
)
def test_bad_rows(content: str, message: str, place: Path, tmp_path: Path) -> None:
    folder = make(tmp_path / "run", place / "tales.npz")
    (folder / "rounds.jsonl").write_text(content)
    with pytest.raises(CoveyError, match=message):
        call("report", folder)


def heights(drawn: str) -> list[float]:
    return [float(y) for y in re.findall(r'<circle [^>]*cy="([0-9.]+)"', drawn)]


def test_small_and_large_are_both_seen() -> None:
    """A method that sends a thousandth of another is no line at the bottom."""
    small, large = (Line("m", [Point(r, v, v, v) for r in (1, 2)]) for v in (2e3, 2e6))
    low, _, high, _ = heights(spent("bytes", [small, large], size))
    bottom = 220 - 36
    assert bottom - low > (bottom - high) / 20
    assert "100 MB" not in spent("bytes", [small, large], size) and "10 MB" in spent(
        "bytes", [small, large], size
    )
    flat = heights(spent("bytes", [Line("m", [Point(1, 0, 0, 0), Point(2, 0, 0, 0)])], size))
    assert flat == [bottom, bottom]


def test_seconds() -> None:
    assert [seconds(s) for s in (0, 0.01234, 1.5, 120)] == ["0 s", "12.3 ms", "1.5 s", "120 s"]

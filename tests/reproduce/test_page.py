"""The page of reproduced tables: its content, and that a browser fetches nothing to show it."""

import re
import struct
from pathlib import Path
from typing import Any

import pytest

from browser import NEEDED, browse, console
from covey.study.papers.page import page
from covey.study.papers.plots import logarithmic, panel
from covey.study.render.charts import Entry
from covey.study.render.svg import between
from covey.study.render.units import Stat
from reproduce_records import figure, table


def rows(text: str) -> dict[str, str]:
    """Rows of the first table, by the name in front."""
    body = re.search(r'class="paper-ours">.*?<tbody>(.*?)</tbody>', text, re.DOTALL)
    assert body
    found = re.findall(r"<tr[^>]*>(.*?)</tr>", body[1], re.DOTALL)
    return {re.sub(r"<[^>]+>", "", re.split("</th>", row)[0]): row for row in found}


def test_the_paper_stands_beside_ours() -> None:
    found = rows(page([table()]))
    words = re.findall(r">([^<>]+)</td>", found["PFedRec"])
    assert words == [
        "0.6900",
        "0.6700 ± 0.0032",
        "0.3912",
        "0.3752 ± 0.0032",
        "0.5200 ± 0.0032",
        "0.2912 ± 0.0032",
    ]
    assert {"popularity floor", "MF, pooled ceiling"} <= set(found)
    assert "failed: the loss is not finite" in found["FedNCF"]


def test_verdicts_have_badges_and_reasons() -> None:
    text = page([table()])
    for kind, verdict in (("good", "holds"), ("open", "not decided"), ("bad", "fails")):
        assert f'<span class="badge {kind}">{verdict}</span>' in text
    assert "<small>in all of 2 metrics, p at most 0.0001</small>" in text
    assert "+0.0412" in text and "+0.0310 to +0.0520" in text  # the test behind it


def test_an_impossible_figure_has_its_reason_on_hover_and_below() -> None:
    text = page([table(), figure()])
    reason = "ndcg@10 0.3520 is above hit@10 0.3400: no list of ten gives that"
    assert f'title="{reason}"' in rows(text)["FedFast"]
    assert f'aria-label="impossible: {reason}"' in text
    links, places = set(re.findall(r'href="#(.*?)"', text)), re.findall(r'id="(part.*?)"', text)
    assert links == set(places) == {"part0", "part1", "part0-1", "part1-1"} and len(places) == 4


def test_labels_stay_text() -> None:
    text = page([table()])
    assert text.count("<script>") == 1 and "<img" not in text
    assert "FedMF &lt;/script&gt;" in text


def test_quick_is_loud() -> None:
    text = page([table(quick=True)])
    assert "<h1>QUICK: pfedrec table2" in text and 'class="quick">QUICK' in text
    assert "QUICK" not in page([table()])


def test_nothing_is_loaded() -> None:
    text = page([table(), figure()])
    assert not re.search(
        r"(?:src|srcset|action|data)=|url\(|@import|<link|<iframe", re.sub(r"&lt;.*?&gt;", "", text)
    )
    assert all(target.startswith("#") for target in re.findall(r'href="(.*?)"', text))


def test_a_figure_has_a_panel_for_each_dataset_and_metric_in_words_too() -> None:
    text = page([figure()])
    told = re.findall(r'aria-label="([^"]* over ε: [^"]*)"', text)
    assert len(told) == 4
    assert told[0].startswith(
        "ML-100K, hit@10 over ε: FedMF 0.4400 at 1, 0.4880 at 16; FedMF, paper, 0.4700 at 1"
    )
    assert told[0].endswith("popularity (floor) 0.3100; MF, pooled (ceiling) 0.5500")
    assert text.count("ε (logarithmic)") == 2  # 0.1 to 100, not 1 to 16
    caption = text[text.index("<figcaption") : text.index("</figcaption>")]
    assert "A larger ε gives a better PFedRec" in caption and ">holds</span>" in caption
    assert "failed: it was killed" in text  # in the table that is folded below


def series(*dots: Entry) -> Any:
    return panel("D", "m", "x", [dots], {})


def test_a_line_stops_where_runs_failed_and_passes_over_what_was_not_run() -> None:
    def at(x: float, failed: bool | None = None) -> Entry:
        values = (0.5, 0.6) if failed is None else ()
        return Entry("A", Stat.of(values), 0, failed=bool(failed), x=x)

    def lines(text: str) -> int:
        return len(re.findall(r'<polyline points="[^"]+" class="curve c0"', text))

    assert lines(series(at(1), at(2), at(3, failed=True), at(4))) == 2
    assert lines(series(at(1), at(2), at(3, failed=False), at(4))) == 1
    assert series(at(1)).count('class="whisker c0"') == 3


def test_axes() -> None:
    assert (
        logarithmic([1, 31])
        and not logarithmic([1, 30])
        and not logarithmic([0, 100])
        and not logarithmic([])
    )
    assert between(0.31, 0.49, 4) == pytest.approx([0.35, 0.4, 0.45])
    assert between(-0.1, 0.1, 4) == pytest.approx([-0.1, -0.05, 0, 0.05, 0.1])


def test_a_figure_of_nothing_still_stands() -> None:
    record = figure()
    for row in record["rows"]:
        row["cells"] = {}
    assert "no figures" in page([record])


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page([table(), figure()]), encoding="utf-8")
    return path


@NEEDED
def test_a_browser_shows_it(shown: Path, tmp_path: Path) -> None:
    done = browse(tmp_path / "profile", shown, "--dump-dom", "--virtual-time-budget=2000")
    assert done.returncode == 0, done.stderr
    assert not console(done.stderr)
    assert '<html lang="en" class="ready">' in done.stdout and done.stdout.count("<svg") == 8
    assert "<title>pfedrec: 2 tables and figures reproduced – Covey</title>" in done.stdout


@NEEDED
@pytest.mark.parametrize(
    ("width", "flags"),
    [(1200, ()), (1200, ("--blink-settings=preferredColorScheme=0",)), (500, ())],
    ids=["light", "dark", "phone"],
)
def test_it_can_be_pictured(
    shown: Path, tmp_path: Path, width: int, flags: tuple[str, ...]
) -> None:
    shot = tmp_path / "shot.png"
    done = browse(
        tmp_path / "profile", shown, f"--screenshot={shot}", f"--window-size={width},900", *flags
    )
    assert done.returncode == 0, done.stderr
    raw = shot.read_bytes()
    assert struct.unpack(">II", raw[16:24]) == (width, 900) and len(raw) > 15_000


@NEEDED
def test_nothing_is_wider_than_a_phone_and_points_tell_what_they_are(
    shown: Path, tmp_path: Path
) -> None:
    """A script of the test's own writes down how wide the page became, and what a point says."""
    text = re.sub(
        r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", shown.read_text(encoding="utf-8")
    )
    measure = """<script>
      document.querySelectorAll("details").forEach((d) => { d.open = true; });
      document.title = document.documentElement.scrollWidth - innerWidth;
      const dot = document.querySelector("circle.ring");
      const at = dot.getBoundingClientRect();
      const where = { clientX: at.x + at.width / 2, clientY: at.y + at.height / 2 };
      dot.ownerSVGElement.dispatchEvent(new PointerEvent("pointermove", where));
    </script></body>"""
    probe = tmp_path / "probe.html"
    probe.write_text(text.replace("</body>", measure), encoding="utf-8")
    done = browse(
        tmp_path / "profile",
        probe,
        "--dump-dom",
        "--virtual-time-budget=2000",
        "--window-size=500,900",
    )
    assert "<title>0</title>" in done.stdout
    (tip,) = re.findall(r'<div id="tip"[^>]*>(.*?)</div>', done.stdout)
    assert tip.endswith("the paper: 0.6100")


@NEEDED
def test_it_prints(shown: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "page.pdf"
    done = browse(tmp_path / "profile", shown, f"--print-to-pdf={sheet}")
    assert done.returncode == 0, done.stderr
    assert sheet.read_bytes().startswith(b"%PDF") and sheet.stat().st_size > 20_000

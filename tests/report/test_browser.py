"""The page in a real browser: it renders, only its script runs, and nothing is fetched."""

import re
import struct
from pathlib import Path

import pytest

from browser import NEEDED, browse, console
from report_runs import EVIL, call, dataset, make

pytestmark = NEEDED


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    data = dataset(folder / "tales.npz")
    runs = [make(folder / f"fedmf-{seed}", data, seed=seed) for seed in (0, 1)]
    local = make(folder / "local", data, "local")
    assert call("report", runs[0], "--out", folder / "report.html") == 0
    assert call("compare", *runs, local, "--out", folder / "compare.html") == 0
    return folder


@pytest.mark.parametrize("name", ["report.html", "compare.html"])
def test_it_renders(pages: Path, tmp_path: Path, name: str) -> None:
    done = browse(tmp_path / "profile", pages / name, "--dump-dom", "--virtual-time-budget=2000")
    assert done.returncode == 0, done.stderr
    assert not console(done.stderr)
    assert '<html lang="en" class="ready">' in done.stdout  # the script ran to its end
    headings = re.findall(r"<h2>(.*?)</h2>", done.stdout)
    assert {"Results on the test", "Learning curves", "What left the device", "Item map"} <= set(
        headings
    )
    assert done.stdout.count("<svg") >= 5
    assert re.search(
        r"<title>(fedmf|2 methods) on tales – Covey</title>", done.stdout
    )  # no title ran as a script
    assert done.stdout.count("<script>") == 1 and "<img" not in done.stdout


def test_the_console_is_heard(pages: Path, tmp_path: Path) -> None:
    """Else the test above proves nothing; and the policy holds back what is no part of the page."""
    bad = tmp_path / "bad.html"
    page = (pages / "report.html").read_text(encoding="utf-8")
    bad.write_text(
        page.replace("<footer>", f"<footer>{EVIL.removeprefix('</script>')}"), encoding="utf-8"
    )
    done = browse(tmp_path / "profile", bad, "--dump-dom", "--virtual-time-budget=2000")
    assert console(done.stderr)
    assert "<title>fedmf on tales – Covey</title>" in done.stdout


@pytest.mark.parametrize(
    ("width", "flags"),
    [(1200, ()), (1200, ("--blink-settings=preferredColorScheme=0",)), (500, ())],
    ids=["light", "dark", "phone"],
)
def test_it_can_be_pictured(
    pages: Path, tmp_path: Path, width: int, flags: tuple[str, ...]
) -> None:
    shot = tmp_path / "shot.png"
    size = f"--window-size={width},900"
    done = browse(tmp_path / "profile", pages / "report.html", f"--screenshot={shot}", size, *flags)
    assert done.returncode == 0, done.stderr
    raw = shot.read_bytes()
    assert raw[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", raw[16:24]) == (width, 900)
    assert len(raw) > 15_000  # an empty page is a few kB


def test_nothing_is_wider_than_a_phone(pages: Path, tmp_path: Path) -> None:
    """A script of the test's own writes down how wide the page became."""
    page = (pages / "compare.html").read_text(encoding="utf-8")
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    title = "document.title = document.documentElement.scrollWidth - innerWidth;"
    measure = f"<script>{title}</script></body>"
    probe = tmp_path / "probe.html"
    probe.write_text(page.replace("</body>", measure), encoding="utf-8")
    done = browse(
        tmp_path / "profile",
        probe,
        "--dump-dom",
        "--virtual-time-budget=2000",
        "--window-size=500,900",
    )
    assert "<title>0</title>" in done.stdout


def test_a_title_shows_on_hover(pages: Path, tmp_path: Path) -> None:
    page = (pages / "report.html").read_text(encoding="utf-8")
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    point = """<script>
      const svg = document.querySelector("svg.map");
      const at = svg.querySelector("[data-t]").getBoundingClientRect();
      const where = { clientX: at.x + at.width / 2, clientY: at.y + at.height / 2 };
      svg.dispatchEvent(new PointerEvent("pointermove", where));
    </script></body>"""
    probe = tmp_path / "probe.html"
    probe.write_text(page.replace("</body>", point), encoding="utf-8")
    done = browse(tmp_path / "profile", probe, "--dump-dom", "--virtual-time-budget=2000")
    (tip,) = re.findall(
        r'<div id="tip" role="status"( hidden="[^"]*")?[^>]*>(.*?)</div>', done.stdout
    )
    assert tip[0] == "" and tip[1].startswith("&lt;/script&gt;")


def test_it_prints(pages: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "page.pdf"
    done = browse(tmp_path / "profile", pages / "compare.html", f"--print-to-pdf={sheet}")
    assert done.returncode == 0, done.stderr
    assert sheet.read_bytes().startswith(b"%PDF") and sheet.stat().st_size > 20_000

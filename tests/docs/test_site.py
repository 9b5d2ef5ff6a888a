"""The site: it is built from the pages as they are, opens without a network, and has them all."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import covey
from browser import NEEDED, browse, console
from covey.contract.mechanism import Mechanism

for module in ("material", "mkdocstrings_handlers"):
    pytest.importorskip(module, reason="the site needs the extra 'docs'")

ROOT = Path(__file__).parents[2]
# What a browser fetches by itself, by the attribute that says from where.
LOADS = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "use": "href",
}
IDLE = {"canonical", "next", "prev", "alternate"}  # links of a head that nothing is fetched for


def build(config: Path, out: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        words, capture_output=True, text=True, check=False, env=environment, cwd=config.parent
    )


class Page(HTMLParser):
    """What a page loads, where it leads, and its text outside of code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.prose: list[str] = []
        self.menu: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        if tag in LOADS and not IDLE & set(found.get("rel", "").split()):
            self.loads += [found[LOADS[tag]]] if LOADS[tag] in found else []
        if tag == "a" and "href" in found:
            (self.menu if "md-nav__link" in found.get("class", "") else self.links).append(
                found["href"]
            )
        if tag in ("script", "style", "code", "pre"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.prose.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    return {
        p.relative_to(site).as_posix(): Page(p.read_text(encoding="utf-8"))
        for p in site.rglob("*.html")
    }


def test_every_page_is_there_and_in_the_menu(site: Path, pages: dict[str, Page]) -> None:
    written = {
        p.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        for p in (ROOT / "docs").rglob("*.md")
    }
    assert "concepts.html" in written and sum(name.startswith("methods/") for name in written) >= 15
    assert written <= set(pages)
    assert written <= {link.partition("#")[0] for link in pages["index.html"].menu}


def test_the_menu_has_the_methods_in_groups(pages: dict[str, Page]) -> None:
    """In the order of their overview, which is not that of their names."""
    links = pages["index.html"].menu
    first = (
        "index",
        "fedmf",
        "spectral",
        "popularity",
        "a-ra",
        "clip",
    )  # of the overview and of each group
    places = [links.index(f"methods/{name}.html") for name in first]
    assert places == sorted(places)
    menu = "".join(pages["index.html"].prose)
    assert all(
        group in menu for group in ("Federated", "By sums", "References", "Attacks", "Defences")
    )


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        assert page.loads, name
        if name == "404.html":  # a server shows it at any address, so its paths begin at the root
            assert all(load.startswith("/assets/") for load in page.loads)
            continue
        missing = [
            load
            for load in page.loads
            if not (site / name).parent.joinpath(load.partition("?")[0]).is_file()
        ]
        assert not missing, f"{name} loads {missing}"
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"@import|url\(\s*[\"']?(?:https?:)?//", styles)


def test_links_lead_somewhere(site: Path, pages: dict[str, Page]) -> None:
    near = [
        (name, link)
        for name, page in pages.items()
        for link in page.links
        if not re.match(r"\w+:|#|/", link)
    ]
    assert ("methods/fedcl.html", "../files/src/covey/configs/methods/fedcl.toml.html") in near
    assert not [
        (name, link)
        for name, link in near
        if not (site / name).parent.joinpath(link.split("#")[0]).is_file()
    ]


def test_markdown_is_rendered(site: Path, pages: dict[str, Page]) -> None:
    """Tables and lists have become such, and the marks of stored tables do not show."""
    for name, page in pages.items():
        text = "".join(page.prose)
        assert not re.search(
            r"<!--|-->|\|--|\]\(|^(?:- |\* |\d+\. |#+ |```|\|)", text, re.MULTILINE
        ), name
    fedcl = (site / "methods/fedcl.html").read_text(encoding="utf-8")
    assert re.search(r"<h2[^>]*>Equation map.*?</h2>\s*<table>.*?Eq\. 1", fedcl, re.DOTALL)


def test_the_reference_has_what_covey_exports(site: Path) -> None:
    """Also names that are loaded when first asked for, with what their docstrings say."""
    text = (site / "api/covey.html").read_text(encoding="utf-8")
    for name in covey.__all__:
        assert name.startswith("__") or f'id="covey.{name}"' in text, name
    assert "DataFrame" in text and 'id="covey.Recommender.recommend"' in text
    hooks = (site / "api/methods.html").read_text(encoding="utf-8")
    shown = set(re.findall(r'(?:id|title)="covey[\w.]*(?:Hooks|Mechanism)\.(\w+)"', hooks))
    assert {name for name in dir(Mechanism) if not name.startswith("_")} <= shown
    assert "oldest first" in hooks  # what a record's docstring says of a field


MEASURED = """<script>addEventListener("load", () => {
  const box = (what) => document.querySelector(`article ${what}`).getBoundingClientRect()
  const end = (what) => Math.round(box(what).bottom)
  document.body.dataset.ends = [end("ul"), end("img"), end("table")]
})</script></body>"""


@NEEDED
def test_the_first_screens_of_the_front_page(site: Path, tmp_path: Path) -> None:
    """What, for whom, why, a picture and a table, in this order and soon."""
    page = site / "measured.html"
    page.write_text(
        (site / "index.html").read_text(encoding="utf-8").replace("</body>", MEASURED),
        encoding="utf-8",
    )
    done = browse(
        tmp_path / "profile",
        page,
        "--dump-dom",
        "--window-size=1280,1600",
        "--virtual-time-budget=5000",
    )
    (ends,) = re.findall(r'data-ends="([\d,]+)"', done.stdout)
    why, picture, table = map(int, ends.split(","))
    assert 0 < why < picture < table < 1600


@NEEDED
def test_the_search_works_from_disk(site: Path, tmp_path: Path) -> None:
    flags = ("--dump-dom", "--virtual-time-budget=5000")
    done = browse(tmp_path / "profile", site / "concepts.html", *flags, query="?q=krum")
    assert done.returncode == 0, done.stderr
    assert not console(done.stderr)
    results = done.stdout.partition('class="md-search-result__list"')[2].partition("</ol>")[0]
    assert re.search(r'href="[^"]*methods/krum\.html', results)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project's pages, and what they link to."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for name in (
        "mkdocs.yml",
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "LICENSE",
    ):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("src/covey", "papers", "results"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_a_new_page_needs_no_other_change(copy: Path) -> None:
    """It is in the menu, and what it links to outside of docs/ is on the site."""
    (copy / "docs/new").mkdir()
    shutil.copy(ROOT / "docs/images/demo.png", copy / "results/picture.png")
    (copy / "results/one.json").write_text('{"answer": 42}')
    targets = ("../../results/one.json", "../../src/covey/engine/fleet", "../data.md")
    links = " ".join(f"[link]({target})" for target in (*targets, "../../src/covey/core/rng.py"))
    page = f"# New: a page\n\n![picture](../../results/picture.png)\n\n{links}\nAs a list:\n- one\n"
    (copy / "docs/new/page.md").write_text(page)
    done = build(copy / "mkdocs.yml", copy / "site")
    assert done.returncode == 0, done.stderr
    html = (copy / "site/new/page.html").read_text(encoding="utf-8")
    found = Page(html)
    assert {
        "../files/results/one.json.html",
        "../files/src/covey/engine/fleet.html",
        "../data.html",
    } <= set(found.links)
    assert (
        "../files/results/picture.png" in found.loads
        and (copy / "site/files/results/picture.png").is_file()
    )
    assert "<li>one</li>" in html and "42" in (copy / "site/files/results/one.json.html").read_text(
        encoding="utf-8"
    )
    assert "new/page.html" in Page((copy / "site/index.html").read_text(encoding="utf-8")).menu


def test_broken_links_fail(copy: Path) -> None:
    broken = ("nothing.md", "data.md#nothing", "../src/nothing.py", "images/nothing.png")
    links = " ".join(f"[nothing]({link})" for link in broken)
    page = copy / "docs/report.md"
    page.write_text(page.read_text(encoding="utf-8") + f"\nSee {links}.\n", encoding="utf-8")
    done = build(copy / "mkdocs.yml", copy / "site")
    assert done.returncode != 0
    assert not [link for link in broken if f"'{link}'" not in done.stderr]

"""Hooks of MkDocs that build the site: the menu, and pages for linked files outside docs/.

The same Markdown is read in the checkout and on the site. On the site the README is the first page.
Every file outside docs/ that a page links to gets a page too, so that no link leaves the site.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
FIRST = (
    "index.md",
    "quick-start.md",
    "concepts.md",
    "data.md",
    "run-folder.md",
    "report.md",
    "honest-evaluation.md",
    "robustness.md",
)
LAST = ("performance.md", "workers.md", "principles.md", "add-a-method.md", "fleets.md")
PROJECT = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")  # beside the README; last in the menu
HEADINGS = {"api": "API reference", "methods": "Methods", "papers": "Papers"}
API = "api"
LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)\s#]+)(?=[)#])")
STARTS = re.compile(r"(?:[-*]|\d+\.) |\|")  # starts a list or a table
GOES_ON = re.compile(r"(?:[-*]|\d+\.) |\||\s|#")  # lines after which a list needs no empty line
PICTURES = (".png", ".svg", ".html")  # and whole pages: shown as they are
KINDS = {".py": "python", ".toml": "toml", ".yml": "yaml", ".json": "json"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages and the menu."""
    made: dict[str, Path] = {}
    wanted = [ROOT / name for name in ("README.md", *PROJECT)]
    wanted += [
        path for page in files.documentation_pages() for path in _outside(Path(page.abs_src_path))
    ]
    while wanted:
        path = wanted.pop()
        if _uri(path) not in made:
            made[_uri(path)] = path
            wanted += _outside(path) if path.suffix == ".md" else []
    for uri, path in sorted(made.items()):
        as_it_is = path.suffix in PICTURES
        files.append(
            File.generated(config, uri, content=path.read_bytes() if as_it_is else _content(path))
        )
    config.nav = menu({page.src_uri: page.content_string for page in files.documentation_pages()})
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites links to the addresses that the site has."""
    folder = posixpath.dirname(page.file.src_uri)
    path = ROOT / "docs" / page.file.src_uri
    if page.file.generated_by:
        path = ROOT / (
            "README.md"
            if page.file.src_uri == "index.md"
            else page.file.src_uri.removeprefix("files/")
        )
    if path.suffix != ".md" or not path.exists():
        return markdown  # the text of a program

    def moved(link: re.Match[str]) -> str:
        target = (path.parent / link[1]).resolve()
        return posixpath.relpath(_uri(target), folder or ".") if _has_place(target) else link[1]

    return _spaced(LINK.sub(moved, markdown))


def menu(pages: dict[str, str]) -> list[Any]:
    """First pages, folders, other pages, last pages.

    Other pages are those that are neither in `FIRST` nor in `LAST`, so a new page needs no change.
    """
    loose = [uri for uri in sorted(pages) if "/" not in uri and uri not in (*FIRST, *LAST)]
    folders = sorted(
        {uri.split("/")[0] for uri in pages if "/" in uri and not uri.startswith("files/")} - {API}
    )
    nav: list[Any] = [
        {"Overview": uri} if uri == "index.md" else uri for uri in FIRST if uri in pages
    ]
    nav += [_of_folder(folder, pages) for folder in folders]
    nav += [*loose, *(uri for uri in LAST if uri in pages), _of_folder(API, pages)]
    return [*nav, {"Project": [uri for name in PROJECT if (uri := f"files/{name}") in pages]}]


def _of_folder(folder: str, pages: dict[str, str]) -> dict[str, list[Any]]:
    within = {uri: text for uri, text in pages.items() if uri.startswith(f"{folder}/")}
    return {HEADINGS.get(folder, folder.capitalize()): _grouped(within, f"{folder}/index.md")}


def _grouped(pages: dict[str, str], index: str) -> list[Any]:
    """The pages of a folder: first its index, then by the headings of the index that link to them.

    Pages that the index does not link to come last, by name.
    """
    nav: list[Any] = [{"Overview": index}] if index in pages else []
    left = {uri: _short(text) for uri, text in sorted(pages.items()) if uri != index}
    for section in re.split(r"^## ", pages.get(index, ""), flags=re.MULTILINE)[1:]:
        linked = [posixpath.join(posixpath.dirname(index), link) for link in LINK.findall(section)]
        group = [{left.pop(uri): uri} for uri in dict.fromkeys(linked) if uri in left]
        nav += [{section.partition("\n")[0].strip(): group}] if group else []
    return nav + [{title: uri} for uri, title in left.items()]


def _short(text: str) -> str:
    """The title of a page up to a colon."""
    return text.partition("# ")[2].partition("\n")[0].partition(":")[0].strip()


def _outside(page: Path) -> list[Path]:
    """Files that a page links to and that are not under docs/."""
    targets = [
        (page.parent / link).resolve() for link in LINK.findall(page.read_text(encoding="utf-8"))
    ]
    return [
        target
        for target in targets
        if _has_place(target) and not target.is_relative_to(ROOT / "docs")
    ]


def _has_place(path: Path) -> bool:
    """Whether the site has a page for a path; folders of docs/ have none."""
    return path.is_relative_to(ROOT) and (
        path.is_file() or (path.is_dir() and not path.is_relative_to(ROOT / "docs"))
    )


def _uri(path: Path) -> str:
    """The address that a file of the project has on the site."""
    name = path.relative_to(ROOT).as_posix()
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return (
        "index.md"
        if name == "README.md"
        else f"files/{name}" + ("" if path.suffix in (".md", *PICTURES) else ".md")
    )


def _content(path: Path) -> str:
    if path.is_dir():
        return (
            f"# {path.name}\n\n"
            + "\n".join(f"- `{inner.name}`" for inner in sorted(path.iterdir()))
            + "\n"
        )
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    kind = KINDS.get(path.suffix, "text")
    # Records hold mostly figures, which the search leaves out.
    front = "---\nsearch:\n  exclude: true\n---\n" if kind == "json" else ""
    heading = f"# {path.name}\n\n`{path.relative_to(ROOT)}`"
    return f"{front}{heading}\n\n````{kind}\n{text.rstrip()}\n````\n"


def _spaced(markdown: str) -> str:
    """Adds an empty line before a list or a table after text, which only MkDocs needs."""
    out: list[str] = []
    fenced = False
    for line in markdown.splitlines():
        before = out[-1] if out else ""
        if not fenced and STARTS.match(line) and before.strip() and not GOES_ON.match(before):
            out.append("")
        fenced ^= line.lstrip().startswith("```")
        out.append(line)
    return "\n".join(out) + "\n"

"""Find the plans of the papers: a folder in a checkout of covey that is not installed."""

import tomllib
from importlib import resources
from pathlib import Path

from covey.core.errors import CoveyError

PAPERS = "papers"  # in a checkout, beside its pyproject.toml
METHODS = "methods"  # among the papers: methods with the settings of stored records
MISSING = (
    "the plans of the papers are not installed with covey;"
    " run this in a checkout of its source, or name the folder with --papers DIR"
)


def papers(named: Path | None = None) -> dict[str, Path]:
    """Return the folder of each paper by its name, from `named` or else from a checkout."""
    folder = papers_folder(named)
    if folder is None:
        raise CoveyError(MISSING)
    tables = (p for p in sorted(folder.iterdir()) if p.name != METHODS and any(p.glob("*.toml")))
    return {p.name: p for p in tables if p.is_dir()}


def papers_folder(named: Path | None = None) -> Path | None:
    """Return the folder that holds a folder for each paper, or None if there is none.

    Without `named`, look in the checkout around the current folder, then in the checkout from
    which covey itself is imported, as it is after `pip install -e`.
    """
    if named is not None:
        if not named.is_dir():
            what = "--papers takes one that holds a folder for each paper"
            raise CoveyError(f"there is no folder {named}; {what}")
        return named
    here, source = Path.cwd(), Path(str(resources.files("covey"))).parent.parent
    checkouts = (root for root in (here, *here.parents, source) if _is_checkout(root))
    return next((root / PAPERS for root in checkouts), None)


def _is_checkout(root: Path) -> bool:
    if not (root / PAPERS).is_dir():
        return False
    try:
        tree = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False
    project = tree.get("project")
    return isinstance(project, dict) and project.get("name") == "covey"

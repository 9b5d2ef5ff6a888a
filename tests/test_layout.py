"""The layout of the package: few entries, at most nine layers, no import cycle."""

import ast
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "covey"
MODULES = {
    ".".join(["covey", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(
        ".__init__"
    ): path
    for path in SOURCE.rglob("*.py")
}


def imported(name: str) -> Iterator[str]:
    """Modules of covey that a module imports when it is loaded."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            base = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{source}.{alias.name}"
                yield full if full in MODULES else source
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_import_cycle() -> None:
    graph = {name: {m for m in imported(name) if m in MODULES and m != name} for name in MODULES}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert len(order) == len(MODULES)


def test_few_entries_and_layers() -> None:
    entries = [p.name for p in SOURCE.iterdir() if p.name != "__pycache__"]
    assert len(entries) <= 28, sorted(entries)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = (c for c in contracts if c["name"] == "Layers")
    assert layers["exhaustive"] and len(layers["layers"]) <= 9


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (
            "covey.core",
            "Catalogue CoveyError Download Drawer FieldDict Fields Ragged Round Rows Sent",
        ),
        ("covey.core", "Total Upload among_choices cat offsets_of positive stack take"),
        ("covey.mechanism", "ClientView Combine Group Grouping Mechanism ServerStep ServerView"),
        ("covey.mechanism", "TrainingData no_clients"),
        ("covey.server", "Fleet Method Server admit enrol run_round start view"),
        ("covey.objectives", "Bce Bpr NextItemSoftmax NoObjective Objective NO_HISTORY"),
        (
            "covey.models.base",
            "History Model NO_HISTORY catalogue cosine dot drop linear rows share",
        ),
        ("covey.attacks.base", "Attack AttackView Informed Profiled"),
        ("covey.testing", "Conformance"),
    ],
)
def test_methods_find_what_they_import(module: str, names: str) -> None:
    """Modules that methods outside of this repository import from, as they were before the move."""
    loaded = import_module(module)
    assert not [name for name in names.split() if not hasattr(loaded, name)]

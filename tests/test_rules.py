"""Rules of the project that no linter checks. Each rule is a function that names the offenders."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
OTHERS = sorted((ROOT / "bench").rglob("*.py"))
CONFIGS = sorted((ROOT / "src/covey/configs").rglob("*.toml"))

# Absolute paths below these folders belong to one machine. The names are joined here, so that this
# file passes the rule.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:" + "|".join(["work", "root"]) + r")/")


def long_files(paths: Iterable[Path], limit: int) -> list[str]:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    return [f"{path}: {lines} lines" for path, lines in lengths.items() if lines > limit]


def long_functions(paths: Iterable[Path], limit: int) -> list[str]:
    return [
        f"{path}:{node.lineno} {node.name}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > limit
    ]


def without_docstring(paths: Iterable[Path]) -> list[str]:
    return [
        str(path)
        for path in paths
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]


def broken_configs(paths: Iterable[Path]) -> list[str]:
    broken = []
    for path in paths:
        try:
            tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            broken.append(f"{path}: {error}")
    return broken


def machine_paths(paths: Iterable[Path]) -> list[str]:
    found = []
    for path in paths:
        content = path.read_bytes()
        if b"\0" in content:
            continue  # binary
        lines = content.decode("utf-8", errors="replace").splitlines()
        found += [
            f"{path}:{number}" for number, line in enumerate(lines, 1) if MACHINE_PATH.search(line)
        ]
    return found


def project_files() -> list[Path]:
    """The files that git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def expect_none(offenders: list[str]) -> None:
    assert not offenders, "\n".join(["", *(line.removeprefix(f"{ROOT}/") for line in offenders)])


def test_there_is_something_to_check() -> None:
    assert SOURCE
    assert Path(__file__) in TESTS


def test_no_long_file_in_source() -> None:
    expect_none(long_files(SOURCE, 300))


def test_no_long_file_of_tests() -> None:
    expect_none(long_files(TESTS, 500))


def test_no_long_function_in_source() -> None:
    expect_none(long_functions(SOURCE, 45))


def test_no_long_function_of_tests_and_benchmarks() -> None:
    expect_none(long_functions([*TESTS, *OTHERS], 60))


def test_the_linter_checks_the_length_of_lines() -> None:
    """At most 100 columns (E501), and no file or rule is exempt."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]
    lint = tool["lint"]
    assert tool["line-length"] == 100 and "E" in lint["select"]
    assert not {"E", "E5", "E50", "E501"} & {*lint["ignore"], *lint.get("extend-ignore", ())}
    assert not lint.get("per-file-ignores")


def test_every_module_has_a_docstring() -> None:
    expect_none(without_docstring(SOURCE))


def test_every_config_parses() -> None:
    expect_none(broken_configs(CONFIGS))


def test_no_paths_of_a_machine() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    files = project_files()
    assert ROOT / "pyproject.toml" in files
    expect_none(machine_paths(files))


@pytest.mark.parametrize(
    "line", ['"/{}/main"', "see /{}/x", "/{}/x", "path=/{}/x", "`/{}/x`", "file:///{}/x"]
)
@pytest.mark.parametrize("folder", ["work", "root"])
def test_machine_paths_are_found(tmp_path: Path, line: str, folder: str) -> None:
    (tmp_path / "notes.md").write_text("fine\n" + line.format(folder) + "\n")
    assert machine_paths([tmp_path / "notes.md"]) == [f"{tmp_path / 'notes.md'}:2"]


@pytest.mark.parametrize(
    "line", ["src/{}/x", "frame{}/x", "https://host/{}/x", "~/{}/x", "the {} / time"]
)
def test_other_paths_are_not_machine_paths(tmp_path: Path, line: str) -> None:
    (tmp_path / "notes.md").write_text(line.format("work"))
    assert not machine_paths([tmp_path / "notes.md"])


def test_the_rules_can_fail(tmp_path: Path) -> None:
    module = tmp_path / "bad.py"
    module.write_text("def f():\n" + "    x = 1\n" * 60)  # 61 lines, no docstring
    assert long_files([module], 60)
    assert not long_files([module], 61)
    assert long_functions([module], 60)
    assert not long_functions([module], 61)
    assert without_docstring([module]) == [str(module)]
    config = tmp_path / "bad.toml"
    config.write_text("rounds = \n")
    assert len(broken_configs([config])) == 1


# Imports the modules named in argv[2:], while all distributions are blocked except those of argv[1]
# and their requirements.
CORE_ONLY = """
import importlib, re, sys
from importlib import metadata

def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()

core, queue = set(), sys.argv[1].split(",")
while queue:
    name = canonical(queue.pop())
    if name in core:
        continue
    core.add(name)
    try:
        requires = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        continue  # for another platform
    queue += [re.match(r"[\\w.-]+", line)[0] for line in requires if "extra ==" not in line]
for module, owners in metadata.packages_distributions().items():
    if module != "covey" and not core & {canonical(owner) for owner in owners}:
        sys.modules[module] = None
for module in sys.argv[2:]:
    importlib.import_module(module)
"""
NOT_CORE = re.compile(r"covey\.(testing|report|kernels)(\.|$)|.*\.__main__$")


def import_with_core_only(*modules: str) -> subprocess.CompletedProcess[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = ",".join(re.split(r"[^\w.-]", line)[0] for line in project["dependencies"])
    command = [sys.executable, "-c", CORE_ONLY, core, *modules]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_core_dependencies_are_enough() -> None:
    """They suffice from a prepared dataset to metrics."""
    parts = [path.relative_to(ROOT / "src").with_suffix("").parts for path in SOURCE]
    names = [".".join(part).removesuffix(".__init__") for part in parts]
    done = import_with_core_only(*(name for name in names if not NOT_CORE.match(name)))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["pytest", "pandas", "ir_measures"])
def test_other_dependencies_are_blocked(module: str) -> None:
    pytest.importorskip(module)
    assert f"import of {module} halted" in import_with_core_only(module).stderr

"""An installed wheel has the configurations and assets of pages; it runs the quick start."""

import os
import re
import shlex
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def run(*words: str | Path, **more: object) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{shlex.join(map(str, words))}\n{done.stdout}{done.stderr}"
    return str(done.stdout)


def block(page: str, language: str) -> str:
    """The first block of code of a page."""
    found = re.search(
        rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert found, page
    return found[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        ROOT,
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        place,
    )
    (built,) = place.glob("covey-*.whl")
    return built


def dependencies(*requirements: str) -> dict[str, Distribution]:
    """Every installed distribution that these requirements need, directly or not, by name."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        wanted = waiting.pop()
        have = distribution(wanted.name)
        found[canonicalize_name(wanted.name)] = have
        for needed in map(Requirement, have.requires or ()):
            extras = [{"extra": extra} for extra in (*wanted.extras, "")]
            applies = needed.marker is None or any(needed.marker.evaluate(e) for e in extras)
            if applies and (needed.extras or canonicalize_name(needed.name) not in found):
                waiting.append(needed)
    return found


@pytest.fixture
def clean(wheel: Path, tmp_path: Path) -> Path:
    """A new environment with the wheel and the dependencies that it declares, and nothing else.

    The dependencies are links to those installed here, since copies would take a gigabyte.
    """
    place = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", place)
    (extras,) = re.findall(
        r"^python3 -m pip install -c constraints\.txt '\.(\[[a-z,]+\])'$", README, re.MULTILINE
    )
    (site,) = place.glob("lib/python*/site-packages")
    for name, have in dependencies(f"covey{extras}").items():
        for top in {Path(file).parts[0] for file in have.files or ()} - {"..", "__pycache__"}:
            if name != "covey" and not (site / top).exists():
                (site / top).symlink_to(have.locate_file(top))
    pip = (sys.executable, "-m", "pip", "--python", place / "bin/python")
    run(*pip, "install", "-q", "--no-deps", "--no-index", wheel)
    run(*pip, "check")
    return place


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    source = ROOT / "src"
    wanted = {
        p.relative_to(source).as_posix()
        for p in (source / "covey").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        assert wanted - set(archive.namelist()) == set()


@pytest.mark.slow
def test_the_quick_start_works_in_a_clean_environment(clean: Path, tmp_path: Path) -> None:
    """The commands of the quick start, far from the checkout."""
    there = tmp_path / "elsewhere"
    there.mkdir()
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "COVEY", "VIRTUAL"))
    }
    environment = {
        **kept,
        "OMP_NUM_THREADS": "1",
        "PATH": f"{clean / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    code = "import covey; print(covey.__file__)"
    assert run(clean / "bin/python", "-c", code, cwd=there, env=environment).startswith(str(clean))
    commands = [
        shlex.split(line)
        for line in block("docs/quick-start.md", "sh").splitlines()
        if "bin/covey " in line
    ]
    assert len(commands) >= 3
    for words in commands:
        assert run(clean / "bin/covey", *words[1:], cwd=there, env=environment)


@pytest.mark.slow
def test_an_unpacked_wheel_asks_for_the_plans_of_papers(wheel: Path, tmp_path: Path) -> None:
    """They are in the source, and no part of the package."""
    with zipfile.ZipFile(wheel) as archive:
        assert not [
            name for name in archive.namelist() if "papers/" in name and name.endswith(".toml")
        ]
        archive.extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "OMP_NUM_THREADS": "1"}

    def output(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "covey", *map(str, words)]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    refused = output("reproduce", "covey", "demo")
    assert (
        refused.returncode == 2
        and refused.stderr.count("\n") == 1
        and "--papers DIR" in refused.stderr
    )
    assert "covey demo" in output("list", "papers", "--papers", ROOT / "papers").stdout

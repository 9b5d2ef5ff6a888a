"""An installed wheel has the configurations and the assets of pages, and runs the README."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

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


@pytest.fixture
def clean(wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """A new environment with the wheel and its dependencies, by pip as this machine configures it.

    It holds more than a gigabyte, so it goes with its test.
    """
    place = tmp_path / "environment"
    run(sys.executable, "-m", "venv", place)
    (extras,) = re.findall(
        r"^python3 -m pip install -c constraints\.txt '\.(\[[a-z,]+\])'$", README, re.MULTILINE
    )
    run(
        place / "bin/python",
        "-m",
        "pip",
        "install",
        "-q",
        "-c",
        ROOT / "constraints.txt",
        f"{wheel}{extras}",
    )
    yield place
    shutil.rmtree(place)


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
    """The README's lines of Python and the quick start's commands, far from the checkout."""
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
    run(clean / "bin/python", "-m", "pip", "check")
    code = block("README.md", "python") + "\nprint(covey.__file__)"
    output = run(clean / "bin/python", "-c", code, cwd=there, env=environment)
    assert "floor:" in output and output.splitlines()[-1].startswith(str(clean))
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

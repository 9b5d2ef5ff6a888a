"""What is installed is what is in the wheel: configurations, the page's style and script, and the README's lines."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built and unpacked; its dependencies are those of this environment."""
    place = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        str(ROOT),
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(place),
    ]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = place.glob("covey-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "site")
    return place / "site"


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package(installed: Path) -> None:
    source = ROOT / "src"
    wanted = {
        p.relative_to(source) for p in (source / "covey").rglob("*") if p.is_file() and "__pycache__" not in p.parts
    }
    there = {p.relative_to(installed) for p in (installed / "covey").rglob("*") if p.is_file()}
    assert wanted - there == set()


@pytest.mark.slow
def test_the_lines_of_the_readme_work_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    code += f"\nassert covey.__file__.startswith({str(installed)!r}), covey.__file__\n"
    environment = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "floor:" in done.stdout


@pytest.mark.slow
def test_the_plans_of_papers_are_asked_for(installed: Path, tmp_path: Path) -> None:
    """They are in the source, and no part of the package."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}

    def said(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "covey", *map(str, words)]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert not (installed / "covey" / "configs" / "papers").exists()
    refused = said("reproduce", "covey", "demo")
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and "--papers DIR" in refused.stderr
    assert "covey demo" in said("list", "papers", "--papers", ROOT / "papers").stdout

"""Configurations can import modules of covey, and others only if the operator names them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import covey as package
from command import SMALL, Covey, expect_line, expect_nothing, sets
from covey import Recommender
from covey.core import toml_writer, trust
from covey.core.errors import CoveyError
from covey.models import mf
from covey.run.config.build import part_of
from covey.run.config.tree import assign, merge, parse

MINE = '''
"""A mechanism that changes nothing, and a trace of its import."""
from dataclasses import dataclass
from pathlib import Path

from covey.mechanism import Mechanism

(Path(__file__).parent / "imported").touch()


@dataclass(frozen=True)
class Idle(Mechanism):
    name: str = "idle"
'''
HOSTILE = (
    'import pathlib\n(pathlib.Path(__file__).parent / "imported").touch()\n'
    'raise ImportError("hostile")\n'
)
USE = 'mechanism=[{use="mymodel:Idle"}]'
REMEDY = (
    r"configuration names mymodel:Idle, which is not part of covey; if you trust that code, say"
    r' --trust mymodel \(or COVEY_TRUST=mymodel, or trust=\["mymodel"\] in Python\)'
)
LAUNCHER = (
    "import sys\nfrom covey.cli.main import main\n\n"
    "if __name__ == '__main__':\n    sys.exit(main())\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The current folder of a user, with a module of that user in it."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mymodel.py").write_text(MINE)
    yield tmp_path / "here"
    sys.modules.pop("mymodel", None)


def launched(how: str, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """With a script such as pip installs, or with python -m."""
    script = folder.parent / "bin" / "covey"
    script.parent.mkdir(exist_ok=True)
    script.write_text(LAUNCHER)
    words = {
        "covey": [str(script)],
        "-m": ["-m", "covey"],
        "-mcovey.cli.main": ["-mcovey.cli.main"],
    }[how]
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONSAFEPATH", trust.VARIABLE)
    }
    environment["PYTHONPATH"] = str(Path(package.__file__).parents[1])
    line = [sys.executable, *words, *map(str, arguments)]
    return subprocess.run(
        line, capture_output=True, text=True, check=False, cwd=folder, env=environment
    )


RUN = ("run", "--method", "fedmf", *sets(*SMALL, USE), "--out", "out")


@pytest.mark.parametrize("how", ["covey", "-m"])
def test_a_foreign_module_is_refused_with_the_remedy(how: str, folder: Path) -> None:
    done = launched(how, folder, *RUN)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert trust.Untrusted.__name__ not in done.stderr
    with pytest.raises(CoveyError, match=REMEDY):
        raise CoveyError(done.stderr)
    assert sorted(p.name for p in folder.iterdir()) == ["mymodel.py"]


@pytest.mark.parametrize("how", ["covey", "-m"])
def test_a_trusted_module_is_found_in_the_current_folder(how: str, folder: Path) -> None:
    (folder / "numpy.py").write_text(HOSTILE.replace("imported", "hostile"))
    done = launched(how, folder, *RUN, "--trust", "mymodel")
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "imported").exists() and not (folder / "hostile").exists()
    assert not {"trust", "trusted"} & set(parse(folder / "out" / "config.toml"))


def test_the_environment_names_trusted_modules(
    folder: Path, covey: Covey, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(folder)
    before = list(sys.path)
    monkeypatch.setenv("COVEY_TRUST", "another, mymodel")
    assert covey(*RUN).code == 0
    assert sys.path == before
    monkeypatch.delenv("COVEY_TRUST")
    shutil.move(folder / "out" / "result.json", tmp_path / "result.json")
    expect_line(covey("resume", "out"), REMEDY)
    assert covey("resume", "out", "--trust", "mymodel").code == 0


def test_python_names_trusted_modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(CoveyError, match=REMEDY):
        package.fit("fedmf", set=[*SMALL, USE], out=folder / "out")
    expect_nothing(folder / "out")
    fitted = package.fit("fedmf", set=[*SMALL, USE], out=folder / "out", trust=iter(["mymodel"]))
    lists = fitted.recommend(0)
    assert fitted.add_items(["new"], [(0, "new")]).evaluate()
    with pytest.raises(CoveyError, match=REMEDY):
        Recommender.load(folder / "out")
    loaded = Recommender.load(folder / "out", trust="mymodel")
    assert loaded.recommend(0) == lists
    loaded.save(folder / "copy")
    for name in ("out", "copy"):
        assert not {"trust", "trusted"} & set(parse(folder / name / "config.toml"))
    with pytest.raises(CoveyError, match=REMEDY):  # the trust was for those calls only
        Recommender.load(folder / "copy")


@pytest.mark.parametrize("how", ["-m", "-mcovey.cli.main"])
def test_the_current_folder_is_not_imported_by_accident(how: str, folder: Path) -> None:
    for name in ("numpy", "torch", "typing", "argparse", "rich", "optuna"):
        (folder / f"{name}.py").write_text(HOSTILE)
    done = launched(how, folder, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"covey {package.__version__}\n", "")
    if how == "-m":
        done = launched(how, folder, "run", "--method", "fedmf", *sets(*SMALL), "--out", "out")
        assert (done.returncode, done.stderr) == (0, "")
    assert not (folder / "imported").exists()


@pytest.mark.slow
def test_worker_processes_trust_the_same(folder: Path) -> None:
    """And they import nothing else from the current folder, not even while they start."""
    for name in ("pickle", "numpy", "signal", "socket", "multiprocessing"):
        (folder / f"{name}.py").write_text(HOSTILE.replace("imported", "hostile"))
    words = [
        "--method",
        "fedmf",
        "--attacks",
        "random",
        "--defences",
        "clip",
        "--rounds",
        1,
        "--jobs",
        2,
    ]
    refused = launched("-m", folder, "matrix", *words, *sets(*SMALL[:3], USE), "--out", "out")
    assert refused.returncode == 2 and "--trust mymodel" in refused.stderr
    assert not (folder / "out").exists() and not (folder / "imported").exists()
    done = launched(
        "-m", folder, "matrix", *words, *sets(*SMALL[:3], USE), "--out", "out", "--trust", "mymodel"
    )
    assert (done.returncode, "FAILED" in done.stderr) == (0, False), done.stderr
    assert len(list((folder / "out" / "runs").glob("*/made.json"))) == 4
    assert not (folder / "hostile").exists()


# Ways around it


@dataclass(frozen=True)
class Stranger:
    """Not defined in covey."""


def test_a_foreign_class_is_not_reached_through_covey(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mf, "Stranger", Stranger, raising=False)
    section = {"use": "covey.models.mf:Stranger"}
    with pytest.raises(
        CoveyError, match=f"which is defined in {__name__} and is not part of covey; .*--trust"
    ):
        part_of(section)
    assert part_of(section, trust=[__name__]) == Stranger()
    for use in (
        "covey.run.loop:json",
        "covey.run.loop:json.JSONDecoder",
        "covey.models.mf:torch.nn.Module",
    ):
        with pytest.raises(CoveyError, match="has no part"):
            part_of({"use": use})


def test_only_whole_names_are_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    for use in ("mymodel:Idle", "coveys.x:Y", "covey_models:MF", "os:system", "mymodel.covey.x:Y"):
        for named in ([], ["my"], ["mymodel.deep"], ["cove"]):
            with pytest.raises(trust.Untrusted):
                part_of({"use": use}, trust=named)
    assert not (folder / "imported").exists()


def test_a_package_trusts_its_submodules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "mypackage").mkdir()
    (folder / "mypackage" / "idle.py").write_text(MINE)
    monkeypatch.syspath_prepend(folder)
    assert part_of({"use": "mypackage.idle:Idle"}, trust=["mypackage"]).name == "idle"


@pytest.mark.parametrize("word", ["./mymodel.py", "mymodel:Idle", "a,b", ""])
def test_what_is_trusted_is_a_module(word: str, covey: Covey) -> None:
    expect_line(
        covey("run", "--method", "fedmf", "--trust", word),
        "cannot trust .*give the name of a module, such as",
    )


# Run folders from elsewhere


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "done"
    package.fit("fedmf", set=list(SMALL), out=out)
    return out


@pytest.fixture
def tampered(finished: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(folder)
    shutil.copytree(finished, folder / "run")
    tree = assign(parse(folder / "run" / "config.toml"), [USE])
    (folder / "run" / "config.toml").write_text(toml_writer.dumps(tree))
    return folder / "run"


@pytest.mark.parametrize("command", ["resume", "recommend", "report", "compare", "maps", "load"])
def test_a_run_folder_brings_no_code(
    command: str, tampered: Path, folder: Path, covey: Covey
) -> None:
    more = {"recommend": ["--user", 0], "maps": ["--out", folder / "maps.html"]}.get(command, [])
    if command == "resume":
        (tampered / "result.json").unlink()
    before = sorted(folder.rglob("*"))
    if command == "load":
        with pytest.raises(CoveyError, match=REMEDY):
            Recommender.load(tampered)
    else:
        expect_line(covey(command, tampered, *more), REMEDY)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("command", ["report", "compare"])
def test_a_result_brings_no_code(command: str, finished: Path, folder: Path, covey: Covey) -> None:
    shutil.copytree(finished, folder / "run")
    result = json.loads((folder / "run" / "result.json").read_text())
    result["config"] = merge(result["config"], {"mechanism": [{"use": "mymodel:Idle"}]})
    (folder / "run" / "result.json").write_text(json.dumps(result))
    expect_line(covey(command, folder / "run"), REMEDY)

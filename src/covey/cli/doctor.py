"""`covey doctor`: what this machine has, and what covey makes of it."""

import argparse
import json
import os


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "doctor", help="check the installation", epilog="example: covey doctor"
    )
    command.add_argument("--json", action="store_true", help="print as JSON")
    command.set_defaults(act=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    found = checks()
    if options.json:
        print(json.dumps(found))
    else:
        print(
            "\n".join(
                f"{'ok  ' if ok else 'FAIL'} {name}: {note}" for name, (ok, note) in found.items()
            )
        )
    return 0 if all(ok for ok, _ in found.values()) else 1


def checks() -> dict[str, tuple[bool, str]]:
    """What was looked at: whether it is well, and a note."""
    import platform
    import sys
    import tempfile
    from importlib.metadata import PackageNotFoundError, version
    from pathlib import Path

    import torch

    out = {"python": (sys.version_info >= (3, 11), platform.python_version())}
    for package in ("torch", "numpy", "scipy", "scikit-learn", "rich", "safetensors"):
        try:
            out[package] = (True, version(package))
        except PackageNotFoundError:
            out[package] = (False, f"not installed; pip install {package}")
    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "none; runs use the CPU"
    out["cuda"] = (True, cuda)
    out["cores"] = (
        True,
        f"{os.cpu_count()}; covey uses one thread a run, several runs with reproduce --jobs",
    )
    folder = os.environ.get("COVEY_DATA", "")
    there = not folder or Path(folder).is_dir()
    out["data"] = (
        there,
        folder or "COVEY_DATA is not set; the built-in synthetic data is always there",
    )
    with tempfile.TemporaryDirectory() as place:
        out["a run"] = _trial(Path(place) / "run")
    return out


def _trial(out: "os.PathLike[str]") -> tuple[bool, str]:
    """A tiny run from start to end."""
    from pathlib import Path

    from covey.run.config.schema import Config
    from covey.run.config.shipped import read
    from covey.run.config.tree import assign
    from covey.run.loop import run

    small = [
        "data.users=30",
        "data.items=40",
        "data.mean_items=8",
        "run.rounds=1",
        "run.ceilings=[]",
    ]
    result = run(Config.of(assign(read("methods", "fedmf"), small)), Path(out))
    return bool(result["test"]), f"trained and evaluated in {result['seconds']} s"

"""`covey doctor`: checks the installation and what the machine offers."""

import argparse
import json
import os
from pathlib import Path


def act(options: argparse.Namespace) -> int:
    found = checks()
    if options.json:
        print(json.dumps(found))
    else:
        for name, (ok, note) in found.items():
            print(f"{'ok  ' if ok else 'FAIL'} {name}: {note}")
    return 0 if all(ok for ok, _ in found.values()) else 1


def checks() -> dict[str, tuple[bool, str]]:
    """Returns by name whether each check passed, and a note."""
    import platform
    import sys
    import tempfile
    from importlib.metadata import PackageNotFoundError, version

    import torch

    out = {"python": (sys.version_info >= (3, 11), platform.python_version())}
    for package in ("torch", "numpy", "scipy", "scikit-learn", "rich", "safetensors", "narwhals"):
        try:
            out[package] = (True, version(package))
        except PackageNotFoundError:
            out[package] = (False, f"not installed; pip install {package}")
    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "none; runs use the CPU"
    out["cuda"] = (True, cuda)
    threads = "covey uses one thread a run, several runs with reproduce --jobs"
    out["cores"] = (True, f"{os.cpu_count()}; {threads}")
    folder = os.environ.get("COVEY_DATA", "")
    unset = "COVEY_DATA is not set; the built-in synthetic data is always there"
    out["data"] = (not folder or Path(folder).is_dir(), folder or unset)
    with tempfile.TemporaryDirectory() as place:
        out["a run"] = _trial(Path(place) / "run")
    return out


def _trial(out: Path) -> tuple[bool, str]:
    from covey.run.config.schema import Config
    from covey.run.config.shipped import read
    from covey.run.config.tree import assign
    from covey.run.loop import run

    small = ("users=30", "items=40", "mean_items=8")
    changes = [*(f"data.{size}" for size in small), "run.rounds=1", "run.ceilings=[]"]
    result = run(Config.of(assign(read("methods", "fedmf"), changes)), out)
    return bool(result["test"]), f"trained and evaluated in {result['seconds']} s"

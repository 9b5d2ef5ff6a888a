"""On what, and from which version of the code, figures were made."""

import os
import platform
import subprocess
from pathlib import Path

import torch

HERE = Path(__file__).parents[1]  # the package: a change anywhere in it counts


def machine(device: str = "cuda") -> str:
    """What a run on that device is computed by."""
    if device != "cpu" and torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    return f"{platform.machine()} CPU, torch {torch.__version__}"


def commit() -> str:
    """The code's version, and whether it was changed since; COVEY_COMMIT says it where there is no checkout."""
    if "COVEY_COMMIT" in os.environ:
        return os.environ["COVEY_COMMIT"]
    ask = lambda *words: (
        subprocess.run(["git", *words], capture_output=True, text=True, check=True, cwd=HERE).stdout
    )
    try:
        head, changed = (
            ask("rev-parse", "--short", "HEAD").strip(),
            ask("status", "--porcelain", ".").strip(),
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}, changed" if changed else head

"""The machine and the version of the code that produced a result."""

import os
import platform
import subprocess
from pathlib import Path

import torch

HERE = Path(__file__).parents[1]
SOURCES = (".", ":(top)papers")  # the package, and the plans of the papers beside it


def machine(device: str = "cuda") -> str:
    """Names the processor or GPU that a run on this device uses, and the version of torch."""
    if device != "cpu" and torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    return f"{platform.machine()} CPU, torch {torch.__version__}"


def commit() -> str:
    """The commit of the code, or COVEY_COMMIT, and whether code or plans of papers were changed."""
    if "COVEY_COMMIT" in os.environ:
        return os.environ["COVEY_COMMIT"]
    try:
        head = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", *SOURCES)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}, changed" if changed else head


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=True, cwd=HERE)
    return done.stdout.strip()

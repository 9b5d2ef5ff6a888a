"""On what, and from which version of the code, figures were made."""

import os
import platform
import subprocess
from pathlib import Path

import torch


def machine(device: str = "cuda") -> str:
    """What a run on that device is computed by."""
    if device != "cpu" and torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    return f"{platform.machine()} CPU, torch {torch.__version__}"


def commit() -> str:
    """The code's version; COVEY_COMMIT says it where there is no checkout."""
    if "COVEY_COMMIT" in os.environ:
        return os.environ["COVEY_COMMIT"]
    try:
        ask = ["git", "rev-parse", "--short", "HEAD"]
        told = subprocess.run(ask, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
        return told.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"

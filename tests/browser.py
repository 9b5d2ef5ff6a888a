"""A real browser without a window, for tests of pages."""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
    " --disable-background-networking --disable-component-update --disable-dev-shm-usage"
    " --hide-scrollbars --enable-logging=stderr --v=0"
)
NEEDED = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser found; install one of {', '.join(BROWSERS)}"
)


def browse(
    profile: Path, page: Path, *flags: str, query: str = ""
) -> subprocess.CompletedProcess[str]:
    """Open a page with an empty profile; kill the browser if it does not exit."""
    words = [
        str(BROWSER),
        *FLAGS.split(),
        f"--user-data-dir={profile}",
        *flags,
        page.as_uri() + query,
    ]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        errors="replace",
    )
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def console(said: str) -> list[str]:
    """Return the console's lines: errors of the script, and what the page's policy blocked."""
    return re.findall(r"CONSOLE.*", said)

"""Worker processes that carry out several runs at a time."""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

import torch

from .trust import trust_only, trusted

SAFE = "PYTHONSAFEPATH"  # keeps a new process from importing modules of the current folder


@contextmanager
def processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of workers with one thread each, which trust the modules that are trusted here."""
    before = os.environ.get(SAFE)
    os.environ[SAFE] = "1"
    try:
        with ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (trusted(),)) as pool:
            yield pool
    finally:
        if before is None:
            del os.environ[SAFE]
        else:
            os.environ[SAFE] = before


def _begin(names: frozenset[str]) -> None:
    """Prepares a worker that ends with its parent, even if the parent is killed."""
    trust_only(names)
    torch.set_num_threads(1)
    Thread(target=_end_with, args=[parent_process()], daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)

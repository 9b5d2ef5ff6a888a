"""Processes for many runs at a time."""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

import torch

from .trust import begin_with, trusted

SAFE = "PYTHONSAFEPATH"  # keeps a starting process from importing out of the current folder


@contextmanager
def processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Workers of one thread each, which trust what is trusted here."""
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
    """A process that ends with the one it works for, also where that is killed: nobody else would end it."""
    begin_with(names)
    torch.set_num_threads(1)
    Thread(target=_end_with, args=[parent_process()], daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)

"""Processes for many runs at a time."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

import torch


def processes(jobs: int) -> ProcessPoolExecutor:
    """Workers of one thread each."""
    return ProcessPoolExecutor(jobs, get_context("spawn"), _begin)


def _begin() -> None:
    """A process that ends with the one it works for, also where that is killed: nobody else would end it."""
    torch.set_num_threads(1)
    Thread(target=_end_with, args=[parent_process()], daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)

"""A pool of workers that runs everything in this process."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Inline:
    """Runs what is submitted at once, since another process takes seconds to start."""

    def __init__(self, *options: object) -> None:
        pass

    def __enter__(self) -> "Inline":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

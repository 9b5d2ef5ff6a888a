"""Worker processes of this machine, each with its slice of the clients.

They are started as programs of their own, not forked and not by importing the main module again, so
a script needs no main guard. A worker ends as soon as its connection to the parent does.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import torch
from torch import Tensor

from covey.contract.views import TrainingData
from covey.core import CoveyError, Fields, Ragged, below
from covey.core.pipes import receive, send
from covey.core.trust import trust_only, trusted
from covey.engine.client.program import LocalData
from covey.engine.client.ranking import HeldOut

from .base import Clients
from .worker import Worker, WorkerLost, worker_of

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
STARTS_IN = 300  # seconds in which a worker has to be ready
PROGRAM = "import sys, json; sys.path[:] = json.loads(sys.argv[2]);"
PROGRAM += " from covey.engine.fleet.processes import serve; serve(int(sys.argv[1]))"
Slices = Iterable[tuple[Clients, Tensor]]  # of each worker: its clients with their data, their ids


@dataclass
class Processes:
    """The workers of a run and the connections to them."""

    links: list[Connection] = field(default_factory=list)
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    apart: bool = True

    @classmethod
    def spawn(cls, many: int) -> "Processes":
        """Starts worker processes without clients."""
        team = cls()
        try:
            for _ in range(many):
                team._spawn()
            team._collect(range(many), STARTS_IN)
        except (OSError, WorkerLost) as error:
            team.close()
            why = f"a worker process could not be started ({error}); use --jobs 1"
            raise CoveyError(why) from error
        except BaseException:
            team.close()
            raise
        return team

    def host(self, slices: Slices, n_all: int) -> None:
        """Gives each worker its clients; their data are handed over in files that are mapped."""
        with tempfile.TemporaryDirectory(prefix="covey-") as folder:
            for k, (clients, ids_N) in enumerate(slices):
                file = Path(folder) / f"{k}.pt"
                parts, none = _write(clients.data, file), Ragged.of([])
                bare = replace(clients, data=LocalData(TrainingData(none, none)))
                send(self.links[k], ("host", (bare, ids_N, n_all, file, parts)))
            self._collect(range(len(self.links)))

    def _spawn(self) -> None:
        mine, other = socket.socketpair()
        path = [p for p in sys.path if p]  # without the current folder
        handle, env = other.fileno(), {**os.environ, **ONE_THREAD}
        words = [sys.executable, "-P", "-c", PROGRAM, str(handle), json.dumps(path)]
        with other:
            none = subprocess.DEVNULL
            child = subprocess.Popen(words, pass_fds=[handle], stdin=none, env=env)
        self.children.append(child)
        self.links.append(Connection(mine.detach()))
        send(self.links[-1], trusted())

    def call(self, what: str, arguments: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        asked = [k for k, some in enumerate(arguments) if some is not None]
        try:
            for k in asked:
                send(self.links[k], (what, arguments[k]))
        except OSError as error:
            raise WorkerLost("a worker process has ended") from error
        return self._collect(asked)

    def _collect(self, asked: Sequence[int], seconds: float | None = None) -> list[Any]:
        """The answers of some workers; all are read before an error is raised."""
        answers, failed = [], None
        for k in asked:
            try:
                if seconds and not self.links[k].poll(seconds):
                    raise WorkerLost(f"it was not ready after {seconds:.0f} s")
                good, answer = receive(self.links[k])
            except (EOFError, OSError) as error:
                raise WorkerLost("a worker process has ended") from error
            failed = failed if good else answer
            answers.append(answer)
        if failed is not None:
            raise failed
        return answers

    def close(self) -> None:
        for link in self.links:
            link.close()
        for child in self.children:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self.links, self.children = [], []


def _write(data: LocalData, file: Path) -> tuple[str, ...] | None:
    """Writes a worker's data, ids in 32 bits; returns which parts are held out, if any."""
    lists = {"items": data.training.items, "avoid": data.training.avoid}
    flat: Fields = {}
    if held := data.held:
        lists |= {"valid": held.valid, "test": held.test}
        flat |= {f"candidates/{k}": v.clone() for k, v in held.candidates.items()}
    for name, some in lists.items():
        flat |= {f"{name}/values": some.values.int(), f"{name}/offsets": some.offsets.clone()}
    torch.save(flat, file)
    return held.parts if held else None


def _read(file: Path, parts: tuple[str, ...] | None) -> LocalData:
    flat = torch.load(file, mmap=True, weights_only=True)

    def lists(name: str) -> Ragged:
        return Ragged(flat[f"{name}/values"], flat[f"{name}/offsets"])

    training = TrainingData(lists("items"), lists("avoid"))
    if parts is None:
        return LocalData(training)
    held = HeldOut(lists("valid"), lists("test"), below(flat, "candidates/"), parts)
    return LocalData(training, held)


def serve(handle: int) -> None:
    """The main function of a worker process: answers calls until the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends us
    torch.set_num_threads(1)
    link, calls = Connection(handle), SimpleQueue[Any]()
    trust_only(receive(link))
    Thread(target=_listen, args=(link, calls), daemon=True).start()
    worker: Worker | None = None
    send(link, (True, None))
    while True:
        what, arguments = calls.get()
        reply: tuple[bool, Any] = True, None
        try:
            if what == "host":
                clients, ids_N, n_all, file, parts = arguments
                worker = worker_of(replace(clients, data=_read(file, parts)), ids_N, n_all)
            else:
                reply = True, getattr(worker, what)(*arguments)
        except CoveyError as error:
            reply = False, error
        except Exception as error:
            where = traceback.format_exc()
            reply = False, RuntimeError(f"{type(error).__name__} in a worker process:\n{where}")
        with suppress(OSError):
            send(link, reply)


def _listen(link: Connection, calls: "SimpleQueue[Any]") -> None:
    """Passes calls on; ends the process, whatever it does, when the parent is gone."""
    try:
        while True:
            calls.put(receive(link))
    except (EOFError, OSError):
        os._exit(0)

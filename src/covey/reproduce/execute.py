"""Many runs, several at a time, each once: finished ones are found again, broken-off ones go on.

A run that fails leaves a hole and its reason; the others finish.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from .. import atomic, checkpoint
from ..config import Config, Tree
from ..core import CoveyError, Fields
from ..provenance import commit, machine
from ..run import run
from ..workers import processes

DIED = "its process died, as one that needs too much memory does; try fewer --jobs"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """A finished run: its result, where it is, and on what it was made; or why there is none."""

    folder: Path
    result: Tree = field(default_factory=dict)
    made: Tree = field(default_factory=dict)  # machine, commit
    error: str = ""

    def users(self) -> Fields:
        """Each client's test figures at the selected round; `clients` are their numbers."""
        return checkpoint.load_model(self.folder / checkpoint.USERS)


def key(config: Config) -> str:
    """A run's name in the cache; where it is computed is not part of what is computed."""
    tree = config.tree | {"engine": {k: v for k, v in config.tree.get("engine", {}).items() if k != "device"}}
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def execute(configs: Iterable[Config], work: Path, jobs: int = 1, say: Say = lambda line: None) -> dict[str, Outcome]:
    """An outcome for each configuration, by its key."""
    wanted = {key(config): config for config in configs}
    found = {name: done for name in wanted if (done := finished(work / name))}
    todo = {name: config for name, config in wanted.items() if name not in found}
    say(f"{len(wanted)} runs, {len(found)} of them done before")
    began = time.monotonic()
    for count, (name, outcome) in enumerate(_all(todo, work, jobs), 1):
        found[name] = outcome
        left = (time.monotonic() - began) / count * (len(todo) - count)
        say(f"{count} of {len(todo)}, about {_duration(left)} left: {_line(todo[name], outcome)}")
    return found


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _line(config: Config, outcome: Outcome) -> str:
    about = f"{config.tree.get('method', 'run')} on {config.data.name}, seed {config.run.seed}"
    if outcome.error:
        return f"{about} FAILED: {outcome.error}"
    metric = config.evaluate.selector
    return f"{about}: {metric} {outcome.result['test'][metric]:.4f} in {outcome.result['seconds']:.0f} s"


def _all(todo: dict[str, Config], work: Path, jobs: int) -> Iterator[tuple[str, Outcome]]:
    """Outcomes as they come. If a process dies, nobody knows whose it was: the rest run one by one."""
    left = dict(todo)
    for name, done in _pool(left, work, jobs):
        if not isinstance(done.exception(), BrokenProcessPool):
            del left[name]
            yield name, _outcome(done, work / name)
    for name, config in left.items():
        for _, done in _pool({name: config}, work, 1):
            yield name, _outcome(done, work / name)


def _pool(todo: dict[str, Config], work: Path, jobs: int) -> Iterator[tuple[str, "Future[Outcome]"]]:
    if not todo:
        return
    with processes(min(jobs, len(todo))) as pool:
        running = {pool.submit(one, config, work / name): name for name, config in todo.items()}
        for done in as_completed(running):
            yield running[done], done


def _outcome(done: "Future[Outcome]", folder: Path) -> Outcome:
    error = done.exception()
    if isinstance(error, BrokenProcessPool):
        return Outcome(folder, error=DIED)
    if isinstance(error, CoveyError):
        return Outcome(folder, error=str(error))
    if isinstance(error, Exception):
        return Outcome(folder, error=f"{type(error).__name__}: {' '.join(str(error).split())}")
    return done.result()


def finished(folder: Path) -> Outcome | None:
    """A run that is complete, with what it was made on."""
    if not (folder / "made.json").exists():
        return None
    read = lambda name: dict(json.loads((folder / name).read_text(encoding="utf-8")))
    return Outcome(folder, read("result.json"), read("made.json"))


def one(config: Config, folder: Path) -> Outcome:
    """Runs, or goes on with, one configuration."""
    if not (folder / "result.json").exists():
        run(config, folder, resume=(folder / "config.toml").exists())
    (folder / checkpoint.CHECKPOINT).unlink(missing_ok=True)  # large, and the run is done
    atomic.write_text(folder / "made.json", json.dumps({"machine": machine(), "commit": commit()}) + "\n")
    done = finished(folder)
    assert done is not None
    return done

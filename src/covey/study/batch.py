"""Many runs, several at a time, each once: finished ones are found again, broken-off ones go on.

A run that fails leaves a hole and its reason; the others finish.
"""

import hashlib
import json
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from covey import data
from covey.core import atomic
from covey.core.errors import CoveyError
from covey.core.processes import processes
from covey.core.provenance import commit, machine
from covey.core.ragged import Fields
from covey.run import checkpoint
from covey.run.config.schema import Config
from covey.run.config.tree import Tree, parse
from covey.run.loop import run

NOT_RUN = "not run yet"  # the error of a run that nobody has started

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
    """A run's name in the cache; where it is computed, and how much at once, is not part of what is computed."""
    tree = config.tree | {"engine": {}}
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def execute(
    configs: Iterable[Config],
    work: Path,
    jobs: int = 1,
    say: Say = lambda line: None,
    about: Callable[[Config], str] | None = None,
    begin: bool = True,
) -> dict[str, Outcome]:
    """An outcome for each configuration, by its key; `about` is what a run is called in lines to `say`.

    Without `begin`, what is not finished is left as a hole.
    """
    wanted = {key(config): config for config in configs}
    found = {name: done for name, config in wanted.items() if (done := done_before(config, work))}
    todo = {name: config for name, config in wanted.items() if name not in found}
    say(f"{len(wanted)} runs, {len(found)} of them done before")
    if not begin:
        return found | {name: Outcome(work / name, error=NOT_RUN) for name in todo}
    began = time.monotonic()
    for count, (name, outcome) in enumerate(_all(todo, work, jobs), 1):
        found[name] = outcome
        left = (time.monotonic() - began) / count * (len(todo) - count)
        say(
            f"{count} of {len(todo)}, about {_duration(left)} left: {_line(todo[name], outcome, about or _about)}"
        )
    return found


def done_before(config: Config, work: Path) -> Outcome | None:
    """The finished run of a configuration on this data, if there is one."""
    done = finished(work / key(config))
    return done if done and _of_this_data(done, config) else None


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _about(config: Config) -> str:
    return f"{config.tree.get('method', 'run')} on {config.data.name}, seed {config.run.seed}"


def _line(config: Config, outcome: Outcome, about: Callable[[Config], str]) -> str:
    if outcome.error:
        return f"{about(config)} FAILED: {outcome.error}"
    metric = config.evaluate.selector
    return f"{about(config)}: {metric} {outcome.result['test'][metric]:.4f} in {outcome.result['seconds']:.0f} s"


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


def _pool(
    todo: dict[str, Config], work: Path, jobs: int
) -> Iterator[tuple[str, "Future[Outcome]"]]:
    if not todo:
        return
    with processes(min(jobs, len(todo))) as pool:
        running = {pool.submit(one, config, work / name): name for name, config in todo.items()}
        try:
            for done in as_completed(running):
                yield running[done], done
        except BaseException:  # such as Ctrl-C: what waits is not begun
            pool.shutdown(wait=False, cancel_futures=True)
            raise


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
    """Runs, or goes on with, one configuration; where another command has begun it, waits for that one's."""
    with atomic.exclusive(folder.parent / ".locks" / folder.name):
        done = finished(folder)
        return done if done and _of_this_data(done, config) else _made(config, folder)


def _made(config: Config, folder: Path) -> Outcome:
    begun = _begun(config, folder)
    if not (begun and (folder / "result.json").exists()):
        run(config, folder, resume=begun)
    (folder / checkpoint.CHECKPOINT).unlink(missing_ok=True)  # large, and the run is done
    made = {
        "machine": machine(config.engine.device),
        "commit": commit(),
        "data": fingerprint(config.data.name),
    }
    atomic.write_text(folder / "made.json", json.dumps(made) + "\n")
    done = finished(folder)
    assert done is not None
    return done


def _begun(config: Config, folder: Path) -> bool:
    """Whether a run of just this configuration, data and device is there to go on with; any other is removed."""
    if (folder / "config.toml").exists() and not (folder / "made.json").exists():
        with suppress(CoveyError):
            if parse(folder / "config.toml") == config.tree:
                return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def _of_this_data(done: Outcome, config: Config) -> bool:
    return done.made.get("data", "") in ("", fingerprint(config.data.name))


@lru_cache(maxsize=8)
def fingerprint(name: str) -> str:
    """Of a dataset's rows; the built-in one is told by its options alone."""
    if name == "synthetic":
        return ""
    rows = data.load(name, filter=data.Filter())
    total = 0
    for column in (rows.user_E, rows.item_E, rows.time_E, rows.part_E):
        total = zlib.crc32(b"" if column is None else column.tobytes(), total)
    return f"{total:08x}"

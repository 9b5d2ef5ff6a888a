"""Run many configurations, several at a time and each one once.

Finished runs are found again and interrupted runs are resumed. A run that fails leaves its reason
in place of a result, and the others finish. The logger of this module reports the start and the
end of each run at level INFO.
"""

import hashlib
import json
import logging
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path

from covey import data
from covey.core import CoveyError, Fields, atomic
from covey.core.fixed_point import ARITHMETIC
from covey.core.processes import processes
from covey.core.provenance import commit, machine
from covey.run import checkpoint
from covey.run.config.schema import Config
from covey.run.config.tree import Tree, parse
from covey.run.loop import run
from covey.run.workers import sharing

NOT_RUN = "not run yet"  # the error of a run that was not started
DIED = "its process died, as one that needs too much memory does; try fewer --jobs"
Progress = Callable[[str], None]
Ended = tuple[str, "Future[Outcome]"]  # the name of a run
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """A finished run with its result, folder and origin, or the error that prevented it."""

    folder: Path
    result: Tree = field(default_factory=dict)
    made: Tree = field(default_factory=dict)  # machine, commit
    error: str = ""

    def users(self) -> Fields:
        """Return each client's test figures at the selected round; `clients` has their numbers."""
        return checkpoint.load_model(self.folder / checkpoint.USERS)


def key(config: Config) -> str:
    """Return a run's name in the cache; of [engine] only `one_pass` changes a result."""
    one_pass = {"one_pass": True} if config.engine.one_pass else {}
    tree = config.tree | {"engine": one_pass, "arithmetic": ARITHMETIC}
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def execute(
    configs: Iterable[Config],
    work: Path,
    jobs: int = 1,
    progress: Progress = lambda line: None,
    about: Callable[[Config], str] | None = None,
    begin: bool = True,
) -> dict[str, Outcome]:
    """Run the configurations that are not finished yet; return an outcome of each, by its `key`.

    Equal ones are run once, each in a folder in `work`. If there are fewer runs than `jobs`, they
    share these cores as workers. `progress` is called with a line of text after each run, in which
    `about` returns its name. Unless `begin`, runs that are not finished get the error `NOT_RUN`.
    """
    wanted = {key(config): config for config in configs}
    found = {
        name: done for name, config in wanted.items() if (done := finished(config, work / name))
    }
    todo = {name: config for name, config in wanted.items() if name not in found}
    progress(f"{len(wanted)} runs, {len(found)} of them finished before")
    if not begin:
        return found | {name: Outcome(work / name, error=NOT_RUN) for name in todo}
    began = time.monotonic()
    for count, (name, outcome) in enumerate(_all(todo, work, jobs), 1):
        found[name] = outcome
        left = (time.monotonic() - began) / count * (len(todo) - count)
        line = _line(todo[name], outcome, about or _about)
        _log.info("run %s ended: %s", name, line)
        rest = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min"
        progress(f"{count} of {len(todo)}, about {rest} left: {line}")
    return found


def _about(config: Config) -> str:
    return f"{config.tree.get('method', 'run')} on {config.data.name}, seed {config.run.seed}"


def _line(config: Config, outcome: Outcome, about: Callable[[Config], str]) -> str:
    if outcome.error:
        return f"{about(config)} FAILED: {outcome.error}"
    metric, result = config.evaluate.selector, outcome.result
    return f"{about(config)}: {metric} {result['test'][metric]:.4f} in {result['seconds']:.0f} s"


def _all(todo: dict[str, Config], work: Path, jobs: int) -> Iterator[tuple[str, Outcome]]:
    """Yield outcomes as runs end; after a process died, the rest run one at a time to find it."""
    left = dict(todo)
    for name, done in _pool(left, work, jobs):
        if not isinstance(done.exception(), BrokenProcessPool):
            del left[name]
            yield name, _outcome(done, work / name)
    for name, config in left.items():
        for _, done in _pool({name: config}, work, 1):
            yield name, _outcome(done, work / name)


def _pool(todo: dict[str, Config], work: Path, jobs: int) -> Iterator[Ended]:
    if not todo:
        return
    workers = min(jobs, len(todo))
    with processes(workers) as pool:
        running = {
            pool.submit(one, config, work / name): name
            for name, config in zip(todo, sharing(jobs, list(todo.values())))
        }
        waiting = iter(list(todo.items()))  # the pool starts them in this order
        _log_start(islice(waiting, workers), work)
        try:
            for done in as_completed(running):
                yield running[done], done
                _log_start(islice(waiting, 1), work)
        except BaseException:  # such as Ctrl-C: runs that wait do not start
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _log_start(runs: Iterable[tuple[str, Config]], work: Path) -> None:
    for name, config in runs:
        _log.info("run %s starts in %s: %s", name, work / name, _about(config))


def _outcome(done: "Future[Outcome]", folder: Path) -> Outcome:
    error = done.exception()
    if isinstance(error, BrokenProcessPool):
        return Outcome(folder, error=DIED)
    if isinstance(error, CoveyError):
        return Outcome(folder, error=str(error))
    if isinstance(error, Exception):
        return Outcome(folder, error=f"{type(error).__name__}: {' '.join(str(error).split())}")
    return done.result()


def finished(config: Config, folder: Path) -> Outcome | None:
    """Return the outcome of a run that is finished, if it had the present data."""
    if not (folder / "made.json").exists():
        return None
    files = (folder / name for name in ("result.json", "made.json"))
    result, made = (json.loads(file.read_text(encoding="utf-8")) for file in files)
    same = made.get("data", "") in ("", fingerprint(config.data.name))
    return Outcome(folder, result, made) if same else None


def one(config: Config, folder: Path) -> Outcome:
    """Run or resume one configuration; wait for another command that is running it already."""
    with atomic.exclusive(folder.parent / ".locks" / folder.name):
        if done := finished(config, folder):
            return done
        begun = _begun(config, folder)
        if not (begun and (folder / "result.json").exists()):
            run(config, folder, resume=begun, keep="nothing")
        checkpoint.remove(folder)
        where = {"machine": machine(config.engine.device), "commit": commit()}
        made = where | {"data": fingerprint(config.data.name)}
        atomic.write_text(folder / "made.json", json.dumps(made) + "\n")
        done = finished(config, folder)
        assert done is not None
        return done


def _begun(config: Config, folder: Path) -> bool:
    """Return whether the folder has an unfinished run of this configuration; remove any other."""
    if (folder / "config.toml").exists() and not (folder / "made.json").exists():
        with suppress(CoveyError):
            if parse(folder / "config.toml") == config.tree:
                return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


@lru_cache(maxsize=8)
def fingerprint(name: str) -> str:
    """Return a checksum of a dataset's rows; the options alone identify the synthetic one."""
    if name == "synthetic":
        return ""
    rows = data.load(name, filter=data.Filter())
    total = 0
    for column in (rows.user_E, rows.item_E, rows.time_E, rows.part_E):
        total = zlib.crc32(b"" if column is None else column.tobytes(), total)
    return f"{total:08x}"

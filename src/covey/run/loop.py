"""A run from its configuration to its folder of results; it can be killed and resumed."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

from covey import __version__
from covey.core import CoveyError, atomic
from covey.core.fixed_point import ARITHMETIC
from covey.core.lock import hold
from covey.run.config.schema import Config

from . import checkpoint, privacy_budget, selection
from .assemble import device_of, prepare
from .checkpoint import CHECKPOINT, Keep, Row
from .federated import Conduct, Progress, federated, open_folder
from .floor_and_ceiling import references
from .pooled import run_pooled
from .rounds_log import ROUNDS

_log = logging.getLogger(__name__)


def run(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    keep: Keep = "small",
    locked: bool = False,
) -> Row:
    """Trains, evaluates and writes the run folder, locked meanwhile; returns its `result.json`.

    Args:
        config: The configuration of the run.
        out: The run folder.
        resume: Continue from the folder's last checkpoint, or start again if there is none yet.
        progress: Called after every round.
        keep: What a finished run keeps of its clients' state, from which recommendations are made:
            "nothing", "state", "small" for a state of up to 64 MB, or the whole "checkpoint".
        locked: Whether the caller holds the folder's lock.
    """
    with nullcontext() if locked else hold(out):
        if not resume and (out / "config.toml").exists():
            wrong = f"{out} holds a run already"
            raise CoveyError(f"{wrong}; choose another --out, or continue with covey resume {out}")
        with nullcontext() if resume else _cleared_on_error(out):
            result = _run(config, out, Conduct(resume, progress))
        if "pooled" not in config.tree:
            checkpoint.finish(out, keep)
        return result


@contextmanager
def _cleared_on_error(out: Path) -> Iterator[None]:
    """Leaves no files behind when a run fails before its first checkpoint."""
    try:
        yield
    except CoveyError:
        if out.is_dir() and not (out / CHECKPOINT).exists():
            with suppress(OSError):
                for name in ("config.toml", "metrics.jsonl", ROUNDS):
                    (out / name).unlink(missing_ok=True)
                checkpoint.remove(out)
        raise


def _run(config: Config, out: Path, how: Conduct) -> Row:
    device_of(config)  # before anything that takes time
    method, seed = config.tree.get("method", ""), config.run.seed
    _log.info("run of %s with seed %d begins in %s", method or "a method", seed, out)
    prepared = prepare(config).released()
    if "pooled" in config.tree:
        privacy_budget.check_pooled(config)
        open_folder(config, out)
        done = run_pooled(config, prepared, out)
    else:
        if selection.is_needed(config, prepared):
            if not (out / "config.toml").exists():
                open_folder(config, out)
            config = selection.select(config, prepared, out, partial(federated, how=how))
            _log.info("validation selected round %d; it starts on all items", config.run.rounds)
        done = federated(config, prepared, out, how) | selection.summary(out)
    split = prepared.split
    result = {
        "covey": __version__,
        "arithmetic": ARITHMETIC,
        "method": method,
        "preset": config.tree.get("preset", ""),
        "dataset": {"name": prepared.dataset.name, "users": split.n_users, "items": split.n_items},
        "seed": seed,
        **done,
        **references(config, prepared, done, how.stopwatch.read()[1]),
    }
    seconds, cpu = how.stopwatch.read()
    times = {"seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3)}
    result |= {**times, "config": config.tree}
    atomic.write_text(out / "result.json", json.dumps(result, indent=1) + "\n")
    _log.info("run in %s ends after %d rounds and %.1f s", out, result["rounds"], seconds)
    return result

"""References for every result: popularity as the floor, EASE and iALS on pooled data as ceilings.

A ceiling is fitted on the training items of all users and computes scores from the same lists as
the clients of the run. References are kept in the cache folder, by everything they depend on.
"""

import hashlib
import json
import logging
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from covey import evaluate, pooled
from covey.core import CoveyError, atomic
from covey.data.cache import root
from covey.engine.fleet.memory import GIB, memory_of
from covey.evaluate.metrics import clients_to_measure, summarise
from covey.evaluate.ranking import merged
from covey.pooled.choice import fit_chosen, of_users, with_lists
from covey.pooled.common import Fitted, evaluate_pooled
from covey.pooled.popularity import Popularity
from covey.run.config.build import part_of
from covey.run.config.schema import Config
from covey.run.config.shipped import read

from .assemble import Prepared
from .checkpoint import Row

_log = logging.getLogger(__name__)
RATE = 2e10  # multiplications in a CPU second
LONGEST, LARGEST = 60, 2 * GIB  # CPU seconds and bytes up to which a reference is always computed


def references(config: Config, prepared: Prepared, done: Row, cpu_seconds: float) -> Row:
    """Measures the same clients as the run; `run.ceilings` names the ceilings.

    If the run is a reference itself, what it has `done` serves again. A reference that would take
    more than the `cpu_seconds` of the run may be skipped. Returns the entries "floor", "ceiling"
    and "references" (which lists, settings, what was skipped).
    """
    sees, itself = bool(done.get("sees_validation")), config.part("pooled")
    out, chosen, skipped = {}, {}, {}
    for name in ("popularity", *config.run.ceilings):
        model, found = part_of(read("methods", name)["pooled"]), done
        if model != itself:
            path = root() / "references" / f"{_key(config, prepared, model, sees)}.json"
            skipped[name] = _too_much(model, prepared, cpu_seconds)
            found = _cached(path, config, prepared, model, sees, not skipped[name])
        if found:
            out[name], chosen[name] = found["test"], found.get("chosen", {})
        else:
            _log.info("reference model %s: skipped, as it %s", name, skipped[name])
    why = {name: reason for name, reason in skipped.items() if name not in out}
    about = {"sees_validation": sees, "chosen": chosen, "skipped": why}
    return {"floor": {"popularity": out.pop("popularity")}, "ceiling": out, "references": about}


def _too_much(model: Any, prepared: Prepared, cpu_seconds: float) -> str:
    """What a reference would cost, if that is too much; else ""."""
    if isinstance(model, Popularity):
        return ""
    work, size = model.cost(prepared.split.train, prepared.split.n_items)
    large = work / RATE > LONGEST or size > LARGEST
    if not (large and work / RATE > cpu_seconds) and size < memory_of("cpu"):
        return ""
    return f"would take about {work / RATE:,.0f} CPU s and {size / GIB:,.1f} GiB"


def _cached(path: Path, config: Config, data: Prepared, model: Any, sees: bool, make: bool) -> Row:
    """Reads a reference from the cache, or makes it while other processes wait for it."""
    with ExitStack() as held:
        with suppress(OSError, CoveyError):  # without a folder to write to, nothing is kept
            if make and not path.exists():
                held.enter_context(atomic.exclusive(path.with_suffix(".lock")))
        with suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads(path.read_bytes())
            figures = {str(k): float(v) for k, v in found["test"].items()}
            if set(config.evaluate.metrics) <= figures.keys():
                return {"test": figures, "chosen": dict(found["chosen"])}
        made = _made(config, data, model, sees) if make else {}
        with suppress(OSError, CoveyError):
            atomic.write_text(path, json.dumps(made)) if made else None
        return made


def _made(config: Config, prepared: Prepared, model: Any, sees: bool) -> Row:
    whole, candidates, name = prepared.split, prepared.candidates, type(model).__name__.lower()
    _log.info("reference model %s: fit and evaluation begin", name)
    ids_C = torch.arange(whole.n_users)
    if config.evaluate.clients:
        ids_C = clients_to_measure(whole.test.lengths, config.evaluate.clients)
    asked, some = of_users(whole, ids_C), {k: v[ids_C] for k, v in candidates.items()}
    fitted: Fitted = Popularity().fit(whole.train, whole.n_items)
    chosen: Row = {}
    if not isinstance(model, Popularity):
        best, options = fit_chosen(model, whole, config.evaluate, candidates or None)
        fitted = with_lists(best, merged(asked.train, asked.valid) if sees else asked.train)
        chosen = asdict(options)
    found = evaluate_pooled(fitted, asked, config.evaluate, some, ("test",))
    _log.info("reference model %s: evaluated on %d users", name, asked.n_users)
    return {"test": summarise(found["test"], asked.train.lengths), "chosen": chosen}


def _key(config: Config, prepared: Prepared, model: Any, sees: bool) -> str:
    """Names everything that the figures of a reference depend on, its code included."""
    split, how = prepared.split, config.evaluate
    ways = how.candidates, how.seen, how.metrics, how.selector, how.clients
    about = torch.__version__, model, *ways, sees, split.n_items
    made = hashlib.sha256(repr(about).encode())
    for package in (pooled, evaluate):
        for file in sorted(Path(package.__path__[0]).glob("*.py")):
            made.update(file.read_bytes())
    lists = split.train, split.valid, split.test
    tensors = [x for part in lists for x in (part.values, part.offsets)]
    for tensor in (*tensors, *prepared.candidates.values()):
        made.update(tensor.contiguous().numpy().data)
    return made.hexdigest()[:32]

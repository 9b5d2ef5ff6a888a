"""The rounds of a federated run, from a checkpoint or from the start."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from covey.core import CoveyError, Fields, atomic, toml_writer
from covey.core.fixed_point import ARITHMETIC
from covey.engine.encrypted.fleet import EncryptedFleet, opened
from covey.engine.fleet.memory import kept_bytes
from covey.engine.fleet.worker import WorkerLost
from covey.engine.rounds import Server, admit, enrol, reported_metrics, run_round, start
from covey.evaluate.exposure import of_users
from covey.run.config.schema import Config

from . import checkpoint, privacy_budget
from .assemble import Assembly, Prepared, assemble
from .checkpoint import CHECKPOINT, MODEL, USERS, Row
from .evaluation import averages, evaluate_clients, is_better, lists
from .rounds_log import ROUNDS, RoundsLog, Stopwatch
from .schedule import cohort, ends_early, is_measured, joins_late, rounds_of
from .summary import detection_counts, summary

_log = logging.getLogger(__name__)
LARGE = 256_000_000  # bytes of a checkpoint that are said before a run begins
LOSSES = 3  # of workers, after which a run gives up
Progress = Callable[[int, int, Row], None]  # round, of how many, the newest metrics


@dataclass(frozen=True)
class State:
    """Where a run is; with the fleet it is all that a checkpoint holds."""

    server: Server  # the server's record
    round: int = 0  # the last round that has ended
    best: Row = field(default_factory=dict)  # metrics of the best round
    users: Fields = field(default_factory=dict)  # the metrics of each client at that round
    written: int = 0  # the length of `metrics.jsonl` in bytes


@dataclass(frozen=True)
class Conduct:
    """How a run is carried out."""

    resume: bool  # from the last checkpoint, if there is one
    progress: Progress | None
    stopwatch: Stopwatch = field(default_factory=Stopwatch)


def federated(config: Config, prepared: Prepared, out: Path, how: Conduct) -> Row:
    """Trains in rounds, again from the last checkpoint if a worker is lost; returns its result."""
    lost = 0
    while True:
        made = None
        try:
            made = assemble(config, prepared)
            return _trained(made, out, how)
        except WorkerLost as error:
            lost += 1
            if lost == LOSSES:
                why = f"workers ended {lost} times ({error}), as those do that need too much memory"
                raise CoveyError(f"{why}; try fewer --jobs, then covey resume {out}") from error
            _log.warning("%s; the run goes back to its last checkpoint", error)
            how = replace(how, resume=True)
            how.stopwatch.restart()
        finally:
            if made and (close := getattr(made.fleet, "close", None)):
                close()


def _trained(made: Assembly, out: Path, how: Conduct) -> Row:
    config, prepared = made.config, made.prepared
    method, people, fleet = made.method, made.population, made.fleet
    longest = int(prepared.split.train.lengths.max())
    privacy_budget.check(config, method, people, fleet.ids_N, longest)
    if how.resume:
        privacy_budget.check_resume(method, out)
    how.stopwatch.elsewhere = lambda: sum(getattr(fleet, "spent", ()))
    begun = how.resume and (out / CHECKPOINT).exists()
    state, rounds_log = (_load if begun else _begin)(made, out, how.stopwatch)
    if not begun and (size := kept_bytes(method, len(people))) > LARGE:
        _log.warning("checkpoints take up to %.1f GB while the run lasts", size / 1e9)
    total = rounds_of(config, len(people))
    _log.info("%d clients, %d rounds, %d of them done", len(people), total, state.round)
    last = ends_early(config, len(people), state.round, state.best)
    for number in range(state.round + 1, total + 1) if not last else ():
        state, row = _round(made, state, rounds_log, number, out)
        if how.progress:
            how.progress(number, total, row)
        last = number == total or ends_early(config, len(people), number, state.best)
        if number % config.run.checkpoint == 0 or last:
            rounds_log.flush()
            reached: Row = {"round": number, "digest": config.digest()}
            reached |= {"best": state.best, "written": state.written}
            checkpoint.save_run(out, state.server, fleet, reached, state.users)
            _log.debug("round %d: checkpoint saved in %s", number, out)
        if last:
            break
    clear = opened(state.server, made.agreed, method)
    checkpoint.save_model(clear.public, out / MODEL)
    checkpoint.save_model(state.users, out / USERS)
    ledger, meter = privacy_budget.of_sent(fleet, people.program, longest), fleet.meter
    counts = {"rounds": state.round, "dropped": meter.dropped}
    return {
        "rounds": state.round,
        **state.best,
        **summary(config, prepared, people, out, meter.dropped),
        **lists(config, prepared.split, people, fleet, clear, state.round),
        "traffic": {"up_bytes": meter.up, "down_bytes": meter.down} | counts,
        "ledger": ledger.table(),
        "privacy": ledger.summary(config.privacy.delta),
    }


def _begin(made: Assembly, out: Path, stopwatch: Stopwatch) -> tuple[State, RoundsLog]:
    """Enrols the clients; nothing is written before this has succeeded."""
    server, device = start(made.method), made.population.device
    server = replace(server, public={k: v.to(device) for k, v in server.public.items()})
    began = stopwatch.read()
    if isinstance(made.server_side, EncryptedFleet):
        server = made.server_side.begin(server)
    state = State(enrol(server, made.server_side, made.method))
    open_folder(made.config, out)
    checkpoint.remove(out)  # of an earlier run in this folder
    atomic.write_text(out / "metrics.jsonl", "")
    rounds_log = RoundsLog.create(out / ROUNDS, stopwatch, began, device)
    n_clients = len(made.fleet.ids_N)
    rounds_log.stop(made.fleet, 0, n_clients, n_clients, {})
    return state, rounds_log


def _round(
    made: Assembly, state: State, rounds_log: RoundsLog, number: int, out: Path
) -> tuple[State, Row]:
    """Returns the state after a round, and the row of metrics if the round was evaluated."""
    config, fleet, people, server = made.config, made.fleet, made.population, state.server
    total = rounds_of(config, len(people))
    rounds_log.start(fleet)
    if joins_late(config, number, total):
        ids_N = torch.arange(people.n_honest, device=people.device)
        new_C = ids_N[~torch.isin(ids_N, fleet.ids_N)]
        fleet.join(new_C)
        server = admit(server, made.server_side, made.method, number, new_C)
        # Metrics of fewer clients are not comparable with those that follow.
        state = replace(state, best={}, users={})
    asked = cohort(config, fleet.ids_N, number)
    server, answered = run_round(server, made.server_side, made.method, asked)
    metrics = reported_metrics(server) | detection_counts(people, server, answered.ids_C)
    counts = len(asked.ids_C), len(answered.ids_C)
    rounds_log.stop(fleet, number, *counts, metrics)
    _log.debug("round %d of %d: %d clients asked, %d answered", number, total, *counts)
    state = replace(state, server=server, round=number)
    if is_measured(config, len(people), number):
        return _evaluate(made, state, out)
    return state, {}


def _evaluate(made: Assembly, state: State, out: Path) -> tuple[State, Row]:
    config, people, server = made.config, made.population, state.server
    clear = opened(server, made.agreed, made.method)
    ids_C, metrics = evaluate_clients(config, people, made.fleet, clear, state.round)
    row = {"round": state.round, **averages(metrics, people.lengths_N[ids_C])}
    row |= {"told": reported} if (reported := reported_metrics(server)) else {}
    _log.debug("round %d: %s", state.round, row.get("valid") or row.get("test"))
    written = atomic.append(out / "metrics.jsonl", state.written, json.dumps(row) + "\n")
    state = replace(state, written=written)
    if not state.best or is_better(config, row, state.best):
        test = {k: v for k, v in metrics.items() if k.startswith("test/")}
        state = replace(state, best={**row}, users={"clients": ids_C, **test, **of_users(metrics)})
    return state, row


def _load(made: Assembly, out: Path, stopwatch: Stopwatch) -> tuple[State, RoundsLog]:
    device, again = made.population.device, checkpoint.AGAIN
    saved = checkpoint.load(out / CHECKPOINT, device)
    at, metrics = saved.progress, out / "metrics.jsonl"
    if saved.arithmetic != ARITHMETIC:
        wrong = f"the checkpoint in {out} was made by an older arithmetic"
        raise CoveyError(f"{wrong}, with other last digits of every sum; {again}")
    if at["digest"] != made.config.digest():
        raise CoveyError(f"the checkpoint in {out} belongs to another configuration; {again}")
    if not metrics.is_file() or metrics.stat().st_size < at["written"]:
        raise CoveyError(f"{metrics} has lost rows that the checkpoint needs; {again}")
    rounds_log = RoundsLog.resume(out / ROUNDS, stopwatch, at["round"], device)
    checkpoint.restore(made.fleet, saved, out)
    return State(saved.server, at["round"], at["best"], saved.users, at["written"]), rounds_log


def open_folder(config: Config, out: Path) -> None:
    """Makes the run folder and writes its configuration."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CoveyError(f"cannot make {out}: {error.strerror}; choose another --out") from error
    atomic.write_text(out / "config.toml", toml_writer.dumps(config.tree))

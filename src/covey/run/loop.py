"""A run from its configuration to its folder of results; it survives being killed at any instant."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from covey import __version__
from covey.contract.fleet import Request
from covey.core import atomic, toml_writer
from covey.core.errors import CoveyError
from covey.core.lock import hold
from covey.core.messages import Download, Sent, Upload
from covey.core.ragged import Fields
from covey.engine.fleet.base import Population, RunFleet
from covey.engine.rounds import Server, admit, enrol, reported_metrics, run_round, start
from covey.evaluate.exposure import of_users
from covey.evaluate.exposure import summary as exposure
from covey.evaluate.metrics import summarise
from covey.run.config.schema import Config

from . import checkpoint, privacy_budget
from .assemble import Assembly, Prepared, assemble, device_of, prepare
from .checkpoint import CHECKPOINT, MODEL, USERS
from .floor_and_ceiling import references, some_of
from .pooled import run_pooled
from .rounds_log import ROUNDS, Trace, Watch
from .schedule import cohort, joins_late, rounds_of
from .summary import caught, facts

Progress = Callable[[int, int, dict[str, Any]], None]  # round, of how many, the newest metrics


@dataclass(frozen=True)
class State:
    """Where a run is; with the fleet it is all that a checkpoint holds."""

    server: Server
    round: int = 0
    best: dict[str, Any] = field(default_factory=dict)  # the metrics row of the best round so far
    users: Fields = field(default_factory=dict)  # each client's figures at that round
    written: int = 0  # bytes of metrics.jsonl


def run(
    config: Config, out: Path, *, resume: bool = False, progress: Progress | None = None
) -> dict[str, Any]:
    """Trains, evaluates and writes the run folder; returns the result.

    `resume` goes on from the folder's last checkpoint, and begins again where there is none yet.
    The folder is locked meanwhile.
    """
    with hold(out):
        return run_held(config, out, resume=resume, progress=progress)


def run_held(
    config: Config, out: Path, *, resume: bool = False, progress: Progress | None = None
) -> dict[str, Any]:
    """The same where the caller holds the folder's lock."""
    if not resume and (out / "config.toml").exists():
        raise CoveyError(
            f"{out} holds a run already; choose another --out, or go on with covey resume {out}"
        )
    with nullcontext() if resume else _or_nothing(out):
        return _run(config, out, resume, progress)


@contextmanager
def _or_nothing(out: Path) -> Iterator[None]:
    """A run that fails before there is a checkpoint to go on from leaves nothing behind."""
    try:
        yield
    except CoveyError:
        if out.is_dir() and not (out / CHECKPOINT).exists():
            with suppress(OSError):
                for name in ("config.toml", "metrics.jsonl", ROUNDS):
                    (out / name).unlink(missing_ok=True)
        raise


def _run(config: Config, out: Path, resume: bool, progress: Progress | None) -> dict[str, Any]:
    watch = Watch()
    device_of(config)  # before anything that takes time
    prepared = prepare(config)
    if "pooled" in config.tree:
        privacy_budget.check_pooled(config)
        _open(config, out)
        done = run_pooled(config, prepared, out)
    else:
        done = _federated(config, prepared, out, resume, progress, watch)
    result = {
        "covey": __version__,
        "method": config.tree.get("method", ""),
        "preset": config.tree.get("preset", ""),
        "dataset": {
            "name": prepared.dataset.name,
            "users": prepared.split.n_users,
            "items": prepared.split.n_items,
        },
        "seed": config.run.seed,
        **done,
        **references(config, prepared),
        **_spent(watch),
        "config": config.tree,
    }
    atomic.write_text(out / "result.json", json.dumps(result, indent=1) + "\n")
    return result


def _spent(watch: Watch) -> dict[str, float]:
    seconds, cpu = watch.read()
    return {"seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3)}


def _federated(
    config: Config,
    prepared: Prepared,
    out: Path,
    resume: bool,
    progress: Progress | None,
    watch: Watch,
) -> dict[str, Any]:
    made = assemble(config, prepared)
    method, people, fleet = made.method, made.population, made.fleet
    longest = int(prepared.split.train.lengths.max())
    privacy_budget.check(config, method, people, fleet.ids_N, longest)
    if resume:
        privacy_budget.check_resume(method, out)
    begun = resume and (out / CHECKPOINT).exists()
    state, trace = (_load if begun else _begin)(config, made, out, watch)
    total = rounds_of(config, len(people))
    for now in _rounds(config, made, state, trace, total, out, progress):
        state = now
        if state.round % config.run.checkpoint == 0 or state.round == total:
            trace.flush()
            _save(config, fleet, state, out)
    checkpoint.save_model(state.server.public, out / MODEL)
    checkpoint.save_model(state.users, out / USERS)
    ledger = privacy_budget.of_sent(fleet, people.program, longest)
    return {
        "rounds": total,
        **state.best,
        **facts(config, prepared, people, out),
        "traffic": _traffic(fleet, total),
        "ledger": ledger.table(),
        "privacy": ledger.summary(config.privacy.delta),
    }


def _begin(config: Config, made: Assembly, out: Path, watch: Watch) -> tuple[State, Trace]:
    """Nothing is written before the enrolment has succeeded."""
    server, device = start(made.method), made.population.device
    server = replace(server, public={k: v.to(device) for k, v in server.public.items()})
    lap = watch.read()
    state = State(enrol(server, made.server_side, made.method))
    _open(config, out)
    (out / CHECKPOINT).unlink(missing_ok=True)  # of a run that is gone
    atomic.write_text(out / "metrics.jsonl", "")
    trace = Trace.begin(out / ROUNDS, watch, lap, device)
    many = len(made.fleet.ids_N)
    trace.stop(made.fleet, 0, many, many)
    return state, trace


def _open(config: Config, out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CoveyError(
            f"cannot make the folder {out}: {error.strerror}; choose another --out"
        ) from error
    atomic.write_text(out / "config.toml", toml_writer.dumps(config.tree))


def _rounds(
    config: Config,
    made: Assembly,
    state: State,
    trace: Trace,
    total: int,
    out: Path,
    progress: Progress | None,
) -> Iterator[State]:
    fleet, people = made.fleet, made.population
    for number in range(state.round + 1, total + 1):
        server = state.server
        trace.start(fleet)
        if joins_late(config, number, total):
            server = _late(server, made, number)
            state = replace(
                state, best={}, users={}
            )  # of fewer people: not comparable with what follows
        asked = cohort(config, fleet.ids_N, number)
        server, answered = run_round(server, made.server_side, made.method, asked)
        said = reported_metrics(server) | caught(people, server, answered.ids_C)
        trace.stop(fleet, number, len(asked.ids_C), len(answered.ids_C), said)
        state = replace(state, server=server, round=number)
        row: dict[str, Any] = {}
        if number % config.evaluate.every == 0 or number == total:
            state, row = _evaluate(config, made, state, out)
        if progress:
            progress(number, total, row)
        yield state


def _late(server: Server, made: Assembly, number: int) -> Server:
    """The clients that were not there at the start join half-way."""
    ids_N = torch.arange(made.population.n_honest, device=made.population.device)
    new_C = ids_N[~torch.isin(ids_N, made.fleet.ids_N)]
    made.fleet.join(new_C)
    return admit(server, made.server_side, made.method, number, new_C)


def measured(
    config: Config, people: Population, fleet: RunFleet, server: Server, number: int
) -> tuple[Tensor, Fields]:
    """Who measured itself, and the figures of each, on what it ranks with after this round."""
    ids_C = people.honest(fleet.ids_N)
    if config.evaluate.clients:
        ids_C = some_of(people.test_lengths_N[ids_C], config.evaluate.clients)
    sent = Sent({k: v for k, v in server.public.items() if k not in people.program.model.kept})
    with fleet.meter.paused():  # measuring is the study's, not the method's
        answers = fleet.ask(Request("evaluate", number, ids_C, Download(sent)))
    assert isinstance(answers, Upload)
    return ids_C, answers.extra.get("evaluate", {})


def _evaluate(
    config: Config, made: Assembly, state: State, out: Path
) -> tuple[State, dict[str, Any]]:
    people = made.population
    ids_C, figures = measured(config, people, made.fleet, state.server, state.round)
    row = {"round": state.round, **summaries(figures, people.lengths_N[ids_C])}
    row |= {"told": said} if (said := reported_metrics(state.server)) else {}
    state = replace(
        state, written=atomic.append(out / "metrics.jsonl", state.written, json.dumps(row) + "\n")
    )
    if not state.best or _better(config, row, state.best):
        mine = {k: v for k, v in figures.items() if k.startswith("test/")}
        state = replace(state, best={**row}, users={"clients": ids_C, **mine, **of_users(figures)})
    return state, row


def summaries(figures: Fields, activity_C: Tensor) -> dict[str, Any]:
    """Means over clients of the parts that were measured."""
    out: dict[str, Any] = {}
    for part in ("valid", "test"):
        mine = {
            k.removeprefix(f"{part}/"): v for k, v in figures.items() if k.startswith(f"{part}/")
        }
        if mine:
            out[part] = summarise(mine, activity_C)
    pushed = exposure(figures)
    return {**out, "target": pushed} if pushed else out


def _better(config: Config, row: dict[str, Any], best: dict[str, Any]) -> bool:
    """The later of equals, as published code does; without a validation part the last round counts."""
    if "valid" not in row:
        return True
    key = config.evaluate.selector
    return bool(row["valid"][key] >= best["valid"][key])


def _save(config: Config, fleet: RunFleet, state: State, out: Path) -> None:
    progress = {
        "round": state.round,
        "digest": config.digest(),
        "best": state.best,
        "written": state.written,
    }
    checkpoint.Checkpoint(state.server, fleet.state(), progress, state.users).save(out / CHECKPOINT)


def _load(config: Config, made: Assembly, out: Path, watch: Watch) -> tuple[State, Trace]:
    device = made.population.device
    saved = checkpoint.load(out / CHECKPOINT, device)
    at, metrics = saved.progress, out / "metrics.jsonl"
    if at["digest"] != config.digest():
        raise CoveyError(
            f"the checkpoint in {out} belongs to another configuration; {checkpoint.AGAIN}"
        )
    if not metrics.is_file() or metrics.stat().st_size < at["written"]:
        raise CoveyError(
            f"{metrics} has lost rows that the checkpoint counts on; {checkpoint.AGAIN}"
        )
    trace = Trace.resume(out / ROUNDS, watch, at["round"], checkpoint.AGAIN, device)
    made.fleet.load(saved.fleet)
    return State(saved.server, at["round"], at["best"], saved.users, at["written"]), trace


def _traffic(fleet: RunFleet, total: int) -> dict[str, Any]:
    meter = fleet.meter
    return {
        "up_bytes": meter.up,
        "down_bytes": meter.down,
        "rounds": total,
        "dropped": meter.dropped,
    }

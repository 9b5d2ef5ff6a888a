"""The privacy ledger of a run: planned, to refuse a run over its budget, and of what was sent."""

import math
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

from covey.contract.ledger import Disclosure, Key, Ledger
from covey.core import CoveyError, Rng, Round
from covey.engine.client.program import Program
from covey.engine.fleet.base import Metered, Population
from covey.engine.method import Method
from covey.engine.rounds import Server, start, view
from covey.run.config.schema import Config

from .schedule import cohort, joins_late, rounds_of


def of_sent(fleet: Metered, program: Program, items_per_user: int) -> Ledger:
    """Returns the ledger of what has left the devices so far, with fields that no part declares."""
    meter, declared = fleet.meter, program.disclosures()
    missing = Ledger.of(declared).undeclared(meter.bytes)
    undeclared = (Disclosure(*key, "NOT DECLARED by what sends it") for key in missing)
    ledger = Ledger.of([*declared, *undeclared], items_per_user)
    ledger.sends, ledger.bytes, ledger.rows = meter.most_sends(), meter.bytes, _rows(program)
    return ledger


def of_planned(
    config: Config, method: Method, people: Population, ids_N: Tensor, items_per_user: int
) -> Ledger:
    """Returns the ledger of what a run would send by its schedule, without running it."""
    ledger = Ledger.of(people.program.disclosures(), items_per_user)
    ledger.rows = _rows(people.program)
    counts = _counts(config, method, len(people), ids_N)
    sends = {step: int(count_N[: people.n_honest].max()) for step, count_N in counts.items()}
    sends |= {"enrol": 1} | ({"evaluate": 1} if people.program.evaluate.metrics else {})
    declared = ledger.declared
    for step, path in declared:
        if not any((step, str(above)) in declared for above in PurePosixPath(path).parents):
            ledger.sends[step, path] = sends.get(step, 0)
    return ledger


def _counts(config: Config, method: Method, n: int, ids_N: Tensor) -> dict[str, Tensor]:
    """How often each client reports and trains; runs only the hooks that choose who reports."""
    first_N, everybody_N = ids_N.cpu(), torch.arange(n)
    total, ids_N = rounds_of(config, n), first_N
    count = {"report": torch.zeros_like(everybody_N), "train": torch.zeros_like(everybody_N)}
    selected = any(m.implements("select_cohort") for m in method.mechanisms)
    choosers = [m for m in method.mechanisms if m.implements("select_reporters")]
    server, joined = start(method), Round(0, first_N)
    views = ((m, view(server, method, m.name, joined)) for m in choosers)
    server = Server(server.public, {m.name: m.init_state(seen, None) for m, seen in views})
    for number in range(1, total + 1):
        ids_N = everybody_N if joins_late(config, number, total) else ids_N
        round = cohort(config, ids_N, number)
        state = {m.name: m.begin_round(view(server, method, m.name, round)) for m in choosers}
        server = Server(server.public, state)
        views = ((m, view(server, method, m.name, round, "report")) for m in choosers)
        chosen = (m.select_reporters(seen, ids_N) for m, seen in views)
        reporters = next((ids for ids in chosen if ids is not None), round.ids_C)
        if method.has_exchange("report"):
            count["report"][reporters] += 1
        if method.solver is not None:  # a mechanism that selects may always take the same ones
            count["train"][ids_N if selected else round.ids_C] += 1
    return count


def _rows(program: Program) -> dict[str, int]:
    shapes = program.model.public(program.catalogue.n_items, Rng.server(0, 0, "shapes"))
    many = {name: max(1, x.numel() // x.shape[-1]) if x.dim() else 1 for name, x in shapes.items()}
    return {f"{part}/{name}": n for part in ("update", "model") for name, n in many.items()}


def check(config: Config, method: Method, people: Population, ids_N: Tensor, longest: int) -> None:
    """Refuses a run that would spend more than `privacy.max_epsilon`; arguments as `of_planned`."""
    limit = config.privacy
    if math.isinf(limit.max_epsilon):
        return
    if limit.spent >= limit.max_epsilon:
        wrong = f"privacy: spent = {limit.spent:g} of max_epsilon = {limit.max_epsilon:g}"
        raise CoveyError(f"{wrong}: the budget is spent already; nothing may leave the devices")
    ledger = of_planned(config, method, people, ids_N, longest)
    open_ = [f"{step} {name}" for step, name in ledger.unprotected()]
    if open_ and limit.unprotected == "refuse":
        wrong = f"{_some(open_)} would leave without any guarantee"
        add = 'add mechanism.+={use="covey.privacy.uploads:NoisyUploads", rows="all"}'
        rest = "or limit only the rest by privacy.unprotected = 'allow'"
        wrong = f"privacy.max_epsilon = {limit.max_epsilon:g}, but {wrong}"
        raise CoveyError(f"{wrong}; {add} with an epsilon and a clip, {rest}")
    _check_spending(config, ledger)


def _check_spending(config: Config, ledger: Ledger) -> None:
    limit, planned = config.privacy, ledger.summary(config.privacy.delta)
    tighter: dict[str, Any] | None = planned["accountant"]
    epsilon, delta = planned["epsilon_user"], planned["delta_user"]
    if tighter:
        epsilon, delta = tighter["epsilon"], tighter["delta"]
    if delta > limit.delta:
        wrong = f"privacy.delta = {limit.delta:g}, but a user's delta would add up to {delta:g}"
        less = "lower the delta of the noise, use fewer rounds, or raise privacy.delta"
        raise CoveyError(f"{wrong}; {less}")
    if limit.spent + epsilon > limit.max_epsilon:
        before = f" after {limit.spent:g} spent before" if limit.spent else ""
        wrong = f"privacy.max_epsilon = {limit.max_epsilon:g}, but a user would spend {epsilon:g}"
        why = f"{before}: {'; '.join(sums(ledger))}"
        raise CoveyError(f"{wrong}{why}; lower epsilon, use fewer rounds, or raise the limit")


def sums(ledger: Ledger) -> list[str]:
    """Explains how each budget adds up, such as `name 2 x 3 messages = 6`."""
    return [f"{name} {_sum(ledger, keys[0])}" for name, keys in ledger.budgets().items()]


def _sum(ledger: Ledger, key: Key) -> str:
    d, units, times = ledger.declared[key], ledger.units(key), ledger.times(key)
    times = min(times, d.releases) if d.releases else times
    factors = [(times, "message")] if d.unit == "message" else [(units, d.unit), (times, "message")]
    words = [f"{d.epsilon:g}", *(f"{n:,} {what}{'s' * (n != 1)}" for n, what in factors)]
    return f"{' x '.join(words)} = {ledger.spent(key):,.6g}"


def _some(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def check_resume(method: Method, out: Path) -> None:
    """Refuses to resume with noise of devices, since repeated rounds would not be counted."""
    noisy = [m.name for m in method.mechanisms if m.uses_device_noise]
    if noisy:
        wrong = f"{out} cannot go on: {noisy[0]} draws its noise from the device's entropy"
        what = "what was sent since the last checkpoint would be sent again with other noise"
        again = "start again with covey run and another --out (noise = 'simulated' can go on)"
        raise CoveyError(f"{wrong}, and {what}, which no ledger would count; {again}")


def check_pooled(config: Config) -> None:
    """Refuses a privacy limit for a model that trains on pooled data."""
    if not math.isinf(config.privacy.max_epsilon):
        wrong = "[pooled] collects everybody's data without any guarantee"
        limit = f"privacy.max_epsilon = {config.privacy.max_epsilon:g}"
        raise CoveyError(f"{limit}, but {wrong}; choose a federated method")

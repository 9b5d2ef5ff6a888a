"""The ledger of a run: as planned, to refuse what users are not willing to spend, and of what was sent."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from covey.contract.ledger import Disclosure, Key, Ledger
from covey.core.errors import CoveyError
from covey.core.messages import Round
from covey.core.rng import Rng
from covey.engine.client.program import Program
from covey.engine.fleet.base import Metered, Population
from covey.engine.method import Method
from covey.engine.rounds import Server, start, view
from covey.run.config.schema import Config

from .schedule import cohort, joins_late, rounds_of


def of_sent(fleet: Metered, program: Program, items_per_user: int) -> Ledger:
    """What has left the devices so far."""
    declared = program.disclosures()
    silent = Ledger.of(declared).undeclared(
        fleet.meter.bytes
    )  # a mistake of some part, and all the more to be shown
    ledger = Ledger.of(
        [*declared, *(Disclosure(*key, "NOT DECLARED by what sends it") for key in silent)],
        items_per_user,
    )
    ledger.sends, ledger.bytes, ledger.rows = (
        fleet.meter.most_sends(),
        fleet.meter.bytes,
        _rows(program),
    )
    return ledger


def of_planned(
    config: Config, method: Method, people: Population, ids_N: Tensor, items_per_user: int
) -> Ledger:
    """What a run would send, by its schedule: nothing is trained, and nobody is asked."""
    ledger = Ledger.of(people.program.disclosures(), items_per_user)
    ledger.rows = _rows(people.program)
    counts = _counts(config, method, len(people), ids_N)
    told = {step: int(count_N[: people.n_honest].max()) for step, count_N in counts.items()}
    asked = {"enrol": 1} | ({"evaluate": 1} if people.program.evaluate.metrics else {})
    declared = ledger.declared
    plain = [
        key for key in declared if not any((key[0], above) in declared for above in _above(key[1]))
    ]
    ledger.sends = {key: (told | asked).get(key[0], 0) for key in plain}
    return ledger


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


def _counts(config: Config, method: Method, n: int, ids_N: Tensor) -> dict[str, Tensor]:
    """How often each client reports and trains, asking only what decides who reports."""
    first_N, everybody_N = ids_N.cpu(), torch.arange(n)
    total, ids_N = rounds_of(config, n), first_N
    count = {"report": torch.zeros_like(everybody_N), "train": torch.zeros_like(everybody_N)}
    choosers = [m for m in method.mechanisms if m.implements("select_reporters")]
    server = start(method)
    joined = Round(0, first_N)
    server = Server(
        server.public,
        {m.name: m.init_state(view(server, method, m.name, joined), None) for m in choosers},
    )
    for number in range(1, total + 1):
        ids_N = everybody_N if joins_late(config, number, total) else ids_N
        round = cohort(config, ids_N, number)
        see = lambda name, step="train": view(server, method, name, round, step)  # noqa: B023
        server = Server(server.public, {m.name: m.begin_round(see(m.name)) for m in choosers})
        chosen = (m.select_reporters(see(m.name, "report"), ids_N) for m in choosers)
        reporters = next((ids for ids in chosen if ids is not None), round.ids_C)
        if method.has_exchange("report"):
            count["report"][reporters] += 1
        if method.solver is not None:
            count["train"][round.ids_C] += 1
    return count


def _rows(program: Program) -> dict[str, int]:
    """Rows of every parameter that an upload can hold."""
    shapes = program.model.public(program.catalogue.n_items, Rng.server(0, 0, "shapes"))
    many = {name: max(1, x.numel() // x.shape[-1]) if x.dim() else 1 for name, x in shapes.items()}
    return {f"{part}/{name}": n for part in ("update", "model") for name, n in many.items()}


def check(
    config: Config, method: Method, people: Population, ids_N: Tensor, items_per_user: int
) -> None:
    """Refuses a run whose users would spend more than `privacy.max_epsilon`."""
    limit = config.privacy
    if math.isinf(limit.max_epsilon):
        return
    if limit.spent >= limit.max_epsilon:
        raise CoveyError(
            f"privacy: spent = {limit.spent:g} of max_epsilon = {limit.max_epsilon:g}: the budget is spent already;"
            " nothing more may leave the devices"
        )
    ledger = of_planned(config, method, people, ids_N, items_per_user)
    open_ = [f"{step} {name}" for step, name in ledger.unprotected()]
    if open_ and limit.unprotected == "refuse":
        raise CoveyError(
            f"privacy.max_epsilon = {limit.max_epsilon:g}, but {_some(open_)} would leave without any guarantee; add"
            ' mechanism.+={use="covey.privacy.uploads:NoisyUploads", rows="all"} with an epsilon and a clip,'
            " or limit only the rest by privacy.unprotected = 'allow'"
        )
    _afford(config, ledger)


def _afford(config: Config, ledger: Ledger) -> None:
    limit, owed = config.privacy, ledger.summary(config.privacy.delta)
    better: dict[str, Any] | None = owed["accountant"]
    epsilon, slack = (
        (better["epsilon"], better["delta"])
        if better
        else (owed["epsilon_user"], owed["delta_user"])
    )
    if slack > limit.delta:
        raise CoveyError(
            f"privacy.delta = {limit.delta:g}, but a user's delta would add up to {slack:g};"
            " lower the delta of the noise, use fewer rounds, or raise privacy.delta"
        )
    if limit.spent + epsilon > limit.max_epsilon:
        before = f" after {limit.spent:g} spent before" if limit.spent else ""
        raise CoveyError(
            f"privacy.max_epsilon = {limit.max_epsilon:g}, but a user would spend {epsilon:g}{before}:"
            f" {'; '.join(sums(ledger))}; lower epsilon, use fewer rounds, or raise the limit"
        )


def sums(ledger: Ledger) -> list[str]:
    """How each budget adds up, in words."""
    return [f"{name} {_sum(ledger, keys[0])}" for name, keys in ledger.budgets().items()]


def _sum(ledger: Ledger, key: Key) -> str:
    d, units, times = ledger.declared[key], ledger.units(key), ledger.times(key)
    times = min(times, d.releases) if d.releases else times
    many = lambda n, what: f"{n:,} {what}{'s' * (n != 1)}"
    parts = [
        f"{d.epsilon:g}",
        *([many(units, d.unit)] if d.unit != "message" else []),
        many(times, "message"),
    ]
    return f"{' x '.join(parts)} = {ledger.spent(key):,.6g}"


def _some(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def check_resume(method: Method, out: Path) -> None:
    """Rounds since the last checkpoint would be released a second time, with other noise: more than is counted."""
    spends = [m.name for m in method.mechanisms if m.uses_device_noise]
    if spends:
        raise CoveyError(
            f"{out} cannot go on: {spends[0]} draws its noise from the device's entropy, and what was sent since the"
            " last checkpoint would be sent again with other noise, which no ledger would count; start again with"
            " covey run and another --out (noise = 'simulated' can go on)"
        )


def check_pooled(config: Config) -> None:
    if not math.isinf(config.privacy.max_epsilon):
        raise CoveyError(
            f"privacy.max_epsilon = {config.privacy.max_epsilon:g}, but [pooled] collects everybody's data without any"
            " guarantee; choose a federated method"
        )

"""From a configuration to everything a run needs: data on the device, the method, the fleet."""

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from covey import data
from covey.contract.attack import Attack
from covey.contract.fleet import Fleet
from covey.contract.views import TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue
from covey.core.ragged import Ragged
from covey.data.dataset import Dataset, check
from covey.data.folder import Filter
from covey.data.split import Split, SplitConfig, candidates, pool
from covey.data.split import split as split_rows
from covey.data.synthetic import Synthetic
from covey.engine.client.blocks import Engine
from covey.engine.client.malicious import Malicious, leaked
from covey.engine.client.program import LocalData, Program
from covey.engine.client.ranking import HeldOut
from covey.engine.fleet.base import Clients, Population, RunFleet, Simulation
from covey.engine.fleet.memory import check_memory, memory_of
from covey.engine.method import Method
from covey.engine.secure.fleet import SecureFleet
from covey.engine.secure.settings import FEWEST
from covey.evaluate.metrics import EvaluateConfig
from covey.evaluate.ranking import nothing
from covey.run.config.schema import Config, DataConfig


@dataclass(frozen=True)
class Prepared:
    dataset: Dataset
    split: Split
    avoid: Ragged
    candidates: dict[str, Tensor]
    catalogue: Catalogue


def _stamp(name: str) -> tuple[tuple[str, int], ...]:
    """The files of a dataset and when they changed: a changed one is read again."""
    folder = Path(os.environ.get("COVEY_DATA", ""), name)
    files = (
        [Path(name)]
        if name.endswith(".npz")
        else [*sorted(folder.glob("*.csv*")), data.cache.prepared(name)]
    )
    return tuple((str(p), p.stat().st_mtime_ns) for p in files if p.exists())


@lru_cache(maxsize=2)  # several methods and seeds on one dataset
def _rows(
    config: DataConfig, split_config: SplitConfig, stamp: tuple[tuple[str, int], ...]
) -> tuple[Dataset, Split]:
    options = Synthetic(
        users=config.users,
        items=config.items,
        mean_items=config.mean_items,
        groups=config.groups,
        seed=config.seed,
    )
    filtering = (
        Filter(config.min_user, config.min_item) if config.min_user or config.min_item else None
    )
    dataset = check(data.load(config.name, filter=filtering, options=options))
    return dataset, split_rows(dataset, split_config)


def prepare(config: Config) -> Prepared:
    return ready(config, *_rows(config.data, config.split, _stamp(config.data.name)))


def ready(config: Config, dataset: Dataset, split: Split) -> Prepared:
    if not len(split.test.values):
        raise CoveyError(
            "nothing is held out for the test: users need at least 3 interactions; choose another split"
        )
    sampled = config.evaluate.candidates == "sampled"
    single = (
        split.n_users and max(int(part.lengths.max()) for part in (split.valid, split.test)) <= 1
    )
    if sampled and not (config.split.kind == "loo" or (config.split.kind == "given" and single)):
        raise CoveyError(
            "evaluate.candidates = 'sampled' ranks one held-out item of each client;"
            " use split.kind = 'loo', or evaluate.candidates = 'full'"
        )
    popularity_I = torch.bincount(split.train.values, minlength=split.n_items).float()
    return Prepared(
        dataset,
        split,
        pool(split, config.negatives.pool),
        candidates(split, seed=config.run.seed) if sampled else {},
        Catalogue(split.n_items, dataset.titles, popularity_I),
    )


def device_of(config: Config) -> torch.device:
    name = config.engine.device
    kind, _, number = name.partition(":")
    if name != "cpu" and (kind != "cuda" or not (number or "0").isdecimal()):
        raise CoveyError(f"engine.device = {name!r}: valid are 'cpu', 'cuda'")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise CoveyError(
            f"engine.device = {name!r} but no such CUDA device is here; use --set engine.device=cpu"
        )
    if (
        kind == "cuda"
    ):  # the CPU adds in a fixed order anyway, and the switch costs seconds of imports
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return torch.device(name)


def method_of(config: Config, catalogue: Catalogue) -> Method:
    if "solver" not in config.tree and not any(
        "report" in m.exchanges for m in config.parts("mechanism")
    ):
        raise CoveyError(
            "nothing would be trained: the configuration has no [solver] and no mechanism that reports"
        )
    options = {
        "grouping": config.part("grouping"),
        "combine": config.part("combine"),
        "server_step": config.part("step"),
    }
    try:
        return Method(
            config.part("model"),
            config.part("objective"),
            catalogue,
            config.part("solver"),
            tuple(config.parts("mechanism")),
            weighting=config.tree.get("weighting", "equal"),
            seed=config.run.seed,
            **{k: v for k, v in options.items() if v is not None},
        )
    except ValueError as error:
        raise CoveyError(str(error)) from error


def program_of(method: Method, evaluate: EvaluateConfig, engine: Engine, seed: int) -> Program:
    """The client half of a method."""
    return Program(
        method.model,
        method.objective,
        method.catalogue,
        method.solver,
        method.mechanisms,
        method.weighting,
        evaluate,
        engine,
        seed,
    )


def local_data(prepared: Prepared, attackers: int, device: torch.device) -> LocalData:
    """The devices' own data; attackers stand after the honest clients with empty profiles."""
    split, pad = prepared.split, nothing(attackers)
    grown = lambda lists: (Ragged.cat([lists, pad]) if attackers else lists).to(device)
    known = {
        k: torch.cat([v, v[:1].expand(attackers, -1)]).to(device)
        for k, v in prepared.candidates.items()
    }
    held = HeldOut(grown(split.valid), grown(split.test), known)
    return LocalData(TrainingData(grown(split.train), grown(prepared.avoid)), held)


def _watched(config: Config, attack: Attack | None, n_items: int) -> EvaluateConfig:
    """What is measured, with the exposure of what an attack pushes."""
    pushed = tuple(getattr(attack, "targets", ()))
    for section, targets in (("attack", pushed), ("evaluate", config.evaluate.targets)):
        if targets and not 0 <= min(targets) <= max(targets) < n_items:
            rows = f"name items from 0 to {n_items - 1}, by row; covey data show NAME --find TITLE has them"
            raise CoveyError(f"{section}.targets = {list(targets)}; {rows}")
    return replace(config.evaluate, targets=config.evaluate.targets or pushed)


def clients_of(config: Config, prepared: Prepared, method: Method) -> Clients:
    """Who takes part in a run: programs and local data of the honest clients and of the attackers."""
    device = device_of(config)
    n, attackers, malicious = prepared.split.n_users, 0, None
    attack = config.part("attack")
    watched = _watched(config, attack, prepared.split.n_items)
    program = program_of(method, watched, config.engine, config.run.seed)
    program = replace(program, hidden=config.fleet.hides)
    if "attack" in config.tree:
        crew, _ = config.attack()
        attackers = max(1, int(crew.share * n)) if crew.share else 0
        known = leaked(attack, prepared.split.train.to(device), config.run.seed)
        malicious = Malicious(program, attack, n, crew.start, known=known)
    check_memory(method, n + attackers, memory_of(device), f"the {device.type.upper()}")
    present = n - int(config.run.late * n)
    data = local_data(prepared, attackers, device)
    return Clients(program, data, config.run.seed, present, malicious)


def fleet_of(config: Config, clients: Clients) -> RunFleet:
    """The fleet that `[fleet] use` names, with these clients."""
    kind = config.fleet_class()
    fleet: RunFleet = kind.of(clients)
    return fleet


def simulation_of(config: Config, clients: Clients) -> Simulation:
    """The same for a fleet whose clients' private state is in this process."""
    fleet = fleet_of(config, clients)
    if not hasattr(fleet, "private"):
        raise CoveyError(
            f"fleet.use = {config.fleet.use!r}: its clients keep their state to themselves, so nothing can be"
            " recommended from here; ask the clients, or train with the simulated fleet"
        )
    return cast(Simulation, fleet)


@dataclass(frozen=True)
class Assembly:
    """Everything that takes part in the rounds of a run.

    Args:
        method: The method.
        population: What the run knows about the clients.
        fleet: The clients.
        server_side: The fleet as the server sees it: the clients themselves, or their secure sums.
    """

    method: Method
    population: Population
    fleet: RunFleet
    server_side: Fleet


def assemble(config: Config, prepared: Prepared) -> Assembly:
    """Builds the method and the clients of a run from its configuration and data."""
    method = method_of(config, prepared.catalogue)
    clients = clients_of(config, prepared, method)
    fleet = fleet_of(config, clients)
    return Assembly(
        method, clients.population, fleet, server_side_of(config, fleet, clients.program)
    )


def server_side_of(config: Config, fleet: RunFleet, program: Program) -> Fleet:
    """What the server talks to: the devices themselves, or their secure sums."""
    if not config.fleet.secure:
        return fleet
    if 0 < config.run.cohort < FEWEST:
        raise CoveyError(
            f"run.cohort = {config.run.cohort}; a secure sum takes at least {FEWEST} clients"
        )
    for part in program.mechanisms:
        if config.fleet.group and any(d.of_sum for d in part.disclosures()):
            raise CoveyError(
                f"{part.name} spreads its noise over all clients, and the sum of a group has only a part of it;"
                " set fleet.group = 0"
            )
        lost, least = getattr(part, "lost", 1.0), 1 - config.fleet.threshold
        if lost < least:
            raise CoveyError(
                f"{part.name}: lost = {lost}, but a sum opens when a share of {least:g} is lost, with too little noise;"
                f" set lost = {least:g}, or a larger fleet.threshold"
            )
    return SecureFleet(fleet, config.fleet, config.run.seed)

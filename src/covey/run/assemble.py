"""Builds from a configuration what a run needs: data on the device, the method and the fleet."""

import logging
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
from covey.core import Catalogue, CoveyError, Fields, Ragged
from covey.data.dataset import Dataset, check
from covey.data.folder import Filter
from covey.data.settings import Pool
from covey.data.split import Split, SplitConfig, candidates, draw_users, pool
from covey.data.split import split as split_rows
from covey.data.synthetic import Synthetic
from covey.engine.client.blocks import Engine
from covey.engine.client.disclosures import ENCRYPTED
from covey.engine.client.malicious import Malicious, leaked
from covey.engine.client.program import LocalData, Program
from covey.engine.client.ranking import HeldOut
from covey.engine.encrypted.fleet import encrypted
from covey.engine.fleet.base import Clients, Population, RunFleet, Simulation
from covey.engine.fleet.memory import check_memory, memory_of
from covey.engine.method import Method
from covey.engine.secure.fleet import SecureFleet
from covey.engine.secure.settings import FEWEST
from covey.evaluate.metrics import EvaluateConfig
from covey.evaluate.ranking import nothing
from covey.run.config.schema import Config, DataConfig

from .workers import fleet_of, workers_for

Stamp = tuple[tuple[str, int], ...]
LARGE = 5_000_000  # rows of a dataset that are not kept in memory beside their split
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """The data of a run."""

    dataset: Dataset  # the whole dataset
    split: Split  # its parts for training, validation and test
    negatives: Pool  # which items are never negatives of each user, see `avoid`
    candidates: dict[str, Tensor]  # those of each held-out part, if rankings are sampled
    catalogue: Catalogue  # what everybody knows about the items
    avoided: Ragged | None = None  # given in place of what follows from `negatives`

    @property
    def avoid(self) -> Ragged:
        """The items that are never negatives of each user; not kept, since they are many."""
        return pool(self.split, self.negatives) if self.avoided is None else self.avoided

    def released(self) -> "Prepared":
        """Returns the same without the rows of a large dataset, which are in the split."""
        if len(self.dataset) < LARGE:
            return self
        _rows.cache_clear()
        rows = self.dataset
        user_E, item_E = rows.user_E[:0].copy(), rows.item_E[:0].copy()
        bare = replace(rows, user_E=user_E, item_E=item_E, time_E=None, part_E=None)
        return replace(self, dataset=bare)


def _stamp(name: str) -> Stamp:
    """The files of a dataset with their times, so that a changed dataset is read again."""
    folder = Path(os.environ.get("COVEY_DATA", ""), name)
    files = [*sorted(folder.glob("*.csv*")), data.cache.prepared(name)]
    files = [Path(name)] if name.endswith(".npz") else files
    return tuple((str(p), p.stat().st_mtime_ns) for p in files if p.exists())


@lru_cache(maxsize=2)  # several methods and seeds on one dataset
def _rows(config: DataConfig, split_config: SplitConfig, stamp: Stamp) -> tuple[Dataset, Split]:
    sizes = config.users, config.items, config.mean_items, config.groups
    rare = Filter(config.min_user, config.min_item) if config.min_user or config.min_item else None
    options = Synthetic(*sizes, seed=config.seed)
    dataset = check(data.load(config.name, filter=rare, options=options))
    if config.draw_users:
        dataset = draw_users(dataset, config.draw_users, split_config.seed)
    return dataset, split_rows(dataset, split_config)


def prepare(config: Config) -> Prepared:
    """Loads and splits the dataset that a configuration names."""
    _log.info("preparation of dataset %s begins", config.data.name)
    made = prepare_split(config, *_rows(config.data, config.split, _stamp(config.data.name)))
    split, n_train = made.split, len(made.split.train.values)
    sizes = split.n_users, split.n_items, n_train
    _log.info("dataset is ready: %d users, %d items, %d training interactions", *sizes)
    return made


def prepare_split(config: Config, dataset: Dataset, split: Split) -> Prepared:
    """Prepares a dataset that is split already."""
    if not len(split.test.values):
        wrong = "nothing is held out for the test: users need at least 3 interactions"
        raise CoveyError(f"{wrong}; choose another split")
    sampled = config.evaluate.candidates == "sampled"
    held = (split.valid, split.test)
    single = split.n_users and max(int(part.lengths.max()) for part in held) <= 1
    if sampled and not (config.split.kind == "loo" or (config.split.kind == "given" and single)):
        wrong = "evaluate.candidates = 'sampled' ranks one held-out item of each client"
        raise CoveyError(f"{wrong}; use split.kind = 'loo', or evaluate.candidates = 'full'")
    popularity_I = torch.bincount(split.train.values, minlength=split.n_items).float()
    catalogue = Catalogue(split.n_items, dataset.titles, popularity_I)
    found = candidates(split, seed=config.run.seed) if sampled else {}
    return Prepared(dataset, split, config.negatives.pool, found, catalogue)


def device_of(config: Config) -> torch.device:
    name = config.engine.device
    kind, _, number = name.partition(":")
    if name != "cpu" and (kind != "cuda" or not (number or "0").isdecimal()):
        raise CoveyError(f"engine.device = {name!r}: valid are 'cpu', 'cuda'")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        wrong = f"engine.device = {name!r} but no such CUDA device is here"
        raise CoveyError(f"{wrong}; use --set engine.device=cpu")
    if kind == "cuda":  # the CPU is deterministic anyway, and the switch costs seconds of imports
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return torch.device(name)


def method_of(config: Config, catalogue: Catalogue) -> Method:
    """Builds the method; a contradiction among its parts is a `CoveyError`."""
    mechanisms = tuple(config.parts("mechanism"))
    if "solver" not in config.tree and not any("report" in m.exchanges for m in mechanisms):
        why = "the configuration has no [solver] and no mechanism that reports"
        raise CoveyError(f"nothing would be trained: {why}")
    sections = {"grouping": "grouping", "combine": "combine", "server_step": "step"}
    options = {name: config.part(section) for name, section in sections.items()}
    try:
        parts = config.part("model"), config.part("objective"), catalogue, config.part("solver")
        options = {k: v for k, v in options.items() if v is not None}
        weighting = config.tree.get("weighting", "equal")
        return Method(*parts, mechanisms, weighting=weighting, seed=config.run.seed, **options)
    except ValueError as error:
        raise CoveyError(str(error)) from error


def program_of(method: Method, evaluate: EvaluateConfig, engine: Engine, seed: int) -> Program:
    """Returns what the clients execute of a method; `seed` is that of the run."""
    parts = (method.model, method.objective, method.catalogue, method.solver, method.mechanisms)
    return Program(*parts, method.weighting, evaluate, engine, seed)


def local_data(prepared: Prepared, attackers: int, device: torch.device) -> LocalData:
    """Returns the data of all devices; attackers come last and have empty lists."""
    split = prepared.split

    def extended(lists: Ragged) -> Ragged:
        return (Ragged.cat([lists, nothing(attackers)]) if attackers else lists).to(device)

    sampled = prepared.candidates.items()
    known = {k: torch.cat([v, v[:1].expand(attackers, -1)]).to(device) for k, v in sampled}
    held = HeldOut(extended(split.valid), extended(split.test), known)
    return LocalData(TrainingData(extended(split.train), extended(prepared.avoid)), held)


def _evaluation(config: Config, attack: Attack | None, n_items: int) -> EvaluateConfig:
    pushed = tuple(getattr(attack, "targets", ()))
    for section, targets in (("attack", pushed), ("evaluate", config.evaluate.targets)):
        if targets and not 0 <= min(targets) <= max(targets) < n_items:
            wrong = f"{section}.targets = {list(targets)}; name items from 0 to {n_items - 1}"
            raise CoveyError(f"{wrong}, by row; covey data show NAME --find TITLE has them")
    return replace(config.evaluate, targets=config.evaluate.targets or pushed)


def clients_of(config: Config, prepared: Prepared, method: Method) -> Clients:
    """Returns the programs and the local data of the honest clients and of the attackers."""
    device = device_of(config)
    n, attackers, malicious = prepared.split.n_users, 0, None
    attack = config.part("attack")
    evaluate = _evaluation(config, attack, prepared.split.n_items)
    program = program_of(method, evaluate, config.engine, config.run.seed)
    program = replace(program, hidden=config.fleet.hides)
    if config.fleet.encrypted:
        program = replace(program, reads=ENCRYPTED)
    if "attack" in config.tree:
        settings, _ = config.attack()
        attackers = max(1, int(settings.share * n)) if settings.share else 0
        known = leaked(attack, prepared.split.train.to(device), config.run.seed)
        malicious = Malicious(program, attack, n, settings.start, known=known)
    check_memory(method, n + attackers, memory_of(device), f"the {device.type.upper()}")
    present = n - int(config.run.late * n)
    data = local_data(prepared, attackers, device)
    return Clients(program, data, config.run.seed, present, malicious)


def simulation_of(config: Config, clients: Clients) -> Simulation:
    """Returns the fleet if the private state of its clients is in this process."""
    fleet = fleet_of(config, clients)
    if not hasattr(fleet, "private"):
        why = "its clients keep their state to themselves, so nothing can be recommended from here"
        other = "ask the clients, or train with the simulated fleet"
        raise CoveyError(f"fleet.use = {config.fleet.use!r}: {why}; {other}")
    return cast(Simulation, fleet)


@dataclass(frozen=True)
class Assembly:
    """Everything that takes part in the rounds of a run."""

    config: Config
    prepared: Prepared
    method: Method
    population: Population  # what the run knows about the clients
    fleet: RunFleet  # the clients
    server_side: Fleet  # what the server sees: the clients, or their secure or encrypted sums

    @property
    def agreed(self) -> Fields:
        """What the clients share among themselves, such as keys."""
        return getattr(self.fleet, "agreed", {})


def assemble(config: Config, prepared: Prepared) -> Assembly:
    """Builds the method and the clients of a run from its configuration and data."""
    method = method_of(config, prepared.catalogue)
    clients = clients_of(config, prepared, method)
    fleet = fleet_of(config, clients, workers_for(config, clients))
    server_side = server_side_of(config, fleet, clients.program)
    if config.fleet.encrypted:
        method, server_side = encrypted(method, fleet, config.run.seed)
    return Assembly(config, prepared, method, clients.population, fleet, server_side)


def server_side_of(config: Config, fleet: RunFleet, program: Program) -> Fleet:
    """Returns what the server sees: the devices themselves, or their secure sums."""
    hiding = config.fleet.secure or config.fleet.encrypted
    if hiding and 0 < config.run.cohort < FEWEST:
        wrong = f"run.cohort = {config.run.cohort}"
        raise CoveyError(f"{wrong}; a secure sum takes at least {FEWEST} clients")
    if not config.fleet.secure:
        return fleet
    for part in program.mechanisms:
        if config.fleet.group and any(d.of_sum for d in part.disclosures()):
            wrong = f"{part.name} spreads its noise over all clients"
            why = "the sum of a group has only a part of it"
            raise CoveyError(f"{wrong}, and {why}; set fleet.group = 0")
        lost, least = getattr(part, "lost", 1.0), 1 - config.fleet.threshold
        if lost < least:
            why = f"but a sum opens when a share of {least:g} is lost, with too little noise"
            more = f"set lost = {least:g}, or a larger fleet.threshold"
            raise CoveyError(f"{part.name}: lost = {lost}, {why}; {more}")
    return SecureFleet(fleet, config.fleet, config.run.seed)

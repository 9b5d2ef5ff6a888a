"""The schema of a configuration: its sections of settings, and its parts, which `use` names."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from covey.contract.ledger import PrivacyConfig
from covey.core.errors import CoveyError
from covey.core.trust import trusted
from covey.data.settings import SplitConfig
from covey.engine.client.settings import Engine
from covey.engine.secure.settings import FleetConfig
from covey.evaluate.settings import EvaluateConfig
from covey.run.config.build import check_option, class_of, convert, fill, part_of, section_of

from .tree import Tree


@dataclass(frozen=True)
class DataConfig:
    """Which dataset.

    The sizes and the seed are those of the built-in synthetic dataset. `min_user` and `min_item`
    filter users and items with few interactions; with 0 they filter as the dataset's papers do.
    Over 0, `draw_users` keeps so many users, drawn by `split.seed`, and their items.
    """

    name: str = "synthetic"
    users: int = 1000
    items: int = 500
    mean_items: float = 20.0
    groups: int = 8
    seed: int = 0
    min_user: int = 0
    min_item: int = 0
    draw_users: int = 0


@dataclass(frozen=True)
class NegativesConfig:
    """Which own items are never drawn as negatives; `all` leaks held-out items, as published."""

    pool: Literal["train", "all"] = "train"


@dataclass(frozen=True)
class RunConfig:
    rounds: int = 20
    unit: Literal["round", "pass"] = "round"  # what `rounds` counts
    cohort: int = 0  # clients per round; 0: all of them
    # Cohorts are batches of a shuffled pass over all clients, or independent samples.
    schedule: Literal["pass", "sample"] = "pass"
    seed: int = 0
    late: float = 0.0  # share of clients that join half-way
    checkpoint: int = 10  # rounds between checkpoints
    patience: int = 0  # of `unit`, without a better validation, after which a run ends; 0: never
    ceilings: tuple[Literal["ease", "ials"], ...] = ("ease", "ials")

    def __post_init__(self) -> None:
        counts = min(self.cohort, self.patience)
        if self.rounds < 1 or self.checkpoint < 1 or counts < 0 or not 0 <= self.late < 1:
            least = "rounds and checkpoint are at least 1, cohort and patience at least 0"
            raise CoveyError(f"run: {least}, late from 0 to below 1")
        if abs(self.seed) >= 2**62:
            raise CoveyError(f"run.seed = {self.seed}; it has to fit into 62 bits")


@dataclass(frozen=True)
class AttackConfig:
    """Attackers besides the honest clients; `use` names what they do."""

    share: float = 0.001
    start: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.start < 1:
            valid = "share is from 0 (no attackers) to 1, start is the number of a round, 1 or more"
            raise CoveyError(f"attack: {valid}")


# By section: the method by which a class is recognised as such a part.
PARTS = dict(model="score", objective="examples", solver="run", grouping="groups")
PARTS |= dict(combine="combine", step="step", pooled="fit", attack="poison")
PARTS |= dict(mechanism="protect_upload")
LABELS: dict[str, Any] = dict.fromkeys(("method", "title", "paper", "preset"), str)
LABELS |= {"weighting": Literal["equal", "examples"], "tuned": dict}  # `covey tune` writes `tuned`
ATTACK_SETTINGS = tuple(f.name for f in dataclasses.fields(AttackConfig))
WORKERS = ("workers", "backend")  # options of [engine] that say where clients compute
# Options of stored configurations that no longer exist, because they had one value only.
RETIRED = {"evaluate": {"ties": "against"}}


@dataclass(frozen=True)
class Config:
    """A resolved configuration."""

    tree: Tree  # the configuration as plain data in which every key is known
    data: DataConfig = field(default_factory=DataConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    negatives: NegativesConfig = field(default_factory=NegativesConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    run: RunConfig = field(default_factory=RunConfig)
    engine: Engine = field(default_factory=Engine)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    fleet: FleetConfig = field(default_factory=FleetConfig)
    # Modules outside of covey that it may import; the operator names them, not the tree.
    trust: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def of(cls, tree: Tree, trust: Iterable[str] = (), *, parts: bool = True) -> "Config":
        """Checks a tree that may also use modules in `trust`; without `parts`, loads no PyTorch."""
        for key, value in tree.items():
            check_option(key, [*SETTINGS, *PARTS, *LABELS], "the configuration")
            if key in LABELS:
                convert(value, LABELS[key], key)
        convert(tree.get("tuned", {"trials": 0}).get("trials"), int, "tuned.trials")
        sections = {k: fill(c, _current(tree.get(k, {}), k), k) for k, c in SETTINGS.items()}
        config = cls(tree, **sections, trust=trusted(trust))
        here = [name for name in PARTS if config.sections(name)]
        if "pooled" in here and len(here) > 1:
            other = next(name for name in here if name != "pooled")
            wrong = "[pooled] sees everybody's data and excludes other parts"
            raise CoveyError(f"{wrong}; leave out [{other}], or [pooled]")
        if "pooled" in here and config.fleet.hides:
            wrong = "[pooled] sees everybody's data, which fleet.secure and fleet.encrypted hide"
            raise CoveyError(f"{wrong}; leave out one of them")
        for need in ("model", "objective"):
            if need not in here and "pooled" not in here:
                wrong = f"the configuration has no [{need}]"
                raise CoveyError(f"{wrong}; start from one: covey run --method fedncf")
        if parts:
            config.fleet_class()
            for name in here:
                config.parts(name)
        return config

    def sections(self, name: str) -> list[Tree]:
        """Returns the sections [name] or [[name]], each of which names a class."""
        sections = self.tree.get(name, [])
        if name != "mechanism":
            sections = [self.tree[name]] if name in self.tree else []
        elif not isinstance(sections, list):
            ways = "write [[mechanism]], or --set 'mechanism.+={use=\"...\"}'"
            raise CoveyError(f"mechanisms are a list: {ways}")
        found = []
        for section in sections:
            found.append(self.attack()[1] if name == "attack" else section_of(section, name))
            if "use" not in found[-1]:
                raise CoveyError(f'[{name}] names no class; write use = "module:Class"')
        return found

    def parts(self, name: str) -> list[Any]:
        """Builds the objects that sections [name] or [[name]] describe."""
        made = []
        for section in self.sections(name):
            made.append(part_of(section, ATTACK_SETTINGS if name == "attack" else (), self.trust))
            if not hasattr(made[-1], PARTS[name]):
                use = f"[{name}] use = {section['use']!r}"
                raise CoveyError(f'{use} is no {name}; write use = "module:Class" of one')
        return made

    def part(self, name: str) -> Any:
        """Builds the object that section [name] describes, if there is one."""
        return next(iter(self.parts(name)), None)

    def attack(self) -> tuple[AttackConfig, Tree]:
        """Returns the attackers' number and start, and the section of their class."""
        what = dict(section_of(self.tree["attack"], "attack"))
        settings = {k: what.pop(k) for k in ATTACK_SETTINGS if k in what}
        return fill(AttackConfig, settings, "attack"), what

    def fleet_class(self) -> type[Any]:
        """Returns the class of the fleet, which has `of(clients)` and `ask`."""
        return class_of(self.fleet.use, self.trust, is_fleet)

    def digest(self) -> str:
        """Returns a name that equal configurations share, also with other workers."""
        engine = {k: v for k, v in self.tree.get("engine", {}).items() if k not in WORKERS}
        tree = {k: v for k, v in self.tree.items() if k != "engine"}
        tree |= {"engine": engine} if engine else {}
        return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


# The sections of settings, each with the class of its options.
SETTINGS: dict[str, Any] = {f.name: f.default_factory for f in dataclasses.fields(Config)}
SETTINGS = {name: cls for name, cls in SETTINGS.items() if name not in ("tree", "trust")}


def _current(value: Any, name: str) -> Tree:
    retired = RETIRED.get(name, {})
    return {k: v for k, v in section_of(value, name).items() if k not in retired or v != retired[k]}


def is_fleet(cls: type[Any]) -> bool:
    """Whether a class can be the fleet of a run."""
    return hasattr(cls, "of") and hasattr(cls, "ask")

"""A run is one TOML file; `use = "module:Class"` names what to build. Unknown keys are errors with a hint."""

import dataclasses
import difflib
import hashlib
import json
import math
import types
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module, resources
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .blocks import Engine
from .core import CoveyError
from .data.split import SplitConfig
from .evaluate.metrics import EvaluateConfig
from .ledger import PrivacyConfig
from .secure.settings import FleetConfig
from .trees import Tree as Tree
from .trees import assign as assign
from .trees import merge as merge
from .trees import parse as parse

T = TypeVar("T")


@dataclass(frozen=True)
class DataConfig:
    """Which dataset. Sizes are those of the built-in synthetic one; 0 in a filter: as the dataset's papers do."""

    name: str = "synthetic"
    users: int = 1000
    items: int = 500
    mean_items: float = 20.0
    groups: int = 8
    seed: int = 0
    min_user: int = 0
    min_item: int = 0


@dataclass(frozen=True)
class NegativesConfig:
    """Where negatives come from: `train` is what the client knows; `all` leaks held-out items, as published."""

    pool: Literal["train", "all"] = "train"


@dataclass(frozen=True)
class RunConfig:
    rounds: int = 20
    unit: Literal["round", "pass"] = "round"  # what `rounds` counts
    cohort: int = 0  # clients per round; 0: all of them
    schedule: Literal["pass", "sample"] = "pass"  # shuffled batches over everybody, or fresh samples
    seed: int = 0
    late: float = 0.0  # share of clients that join half-way
    checkpoint: int = 10  # rounds between checkpoints
    ceilings: tuple[Literal["ease"], ...] = ("ease",)

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.checkpoint < 1 or self.cohort < 0 or not 0 <= self.late < 1:
            raise CoveyError("run: rounds and checkpoint are at least 1, cohort at least 0, late from 0 to below 1")
        if abs(self.seed) >= 2**62:
            raise CoveyError(f"run.seed = {self.seed}; it has to fit into 62 bits")


@dataclass(frozen=True)
class AttackConfig:
    """Attackers beside the honest clients; `use` in the config names what they do."""

    share: float = 0.001
    start: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.start < 1:
            raise CoveyError("attack: share is from 0 (nobody) to 1, start is the number of a round, 1 or more")


SETTINGS: dict[str, type[Any]] = {
    "data": DataConfig,
    "split": SplitConfig,
    "negatives": NegativesConfig,
    "evaluate": EvaluateConfig,
    "run": RunConfig,
    "engine": Engine,
    "privacy": PrivacyConfig,
    "fleet": FleetConfig,
}
PARTS = {  # the function by which a class is known to be such a part
    "model": "score",
    "objective": "examples",
    "solver": "run",
    "grouping": "groups",
    "combine": "combine",
    "step": "step",
    "pooled": "fit",
    "attack": "poison",
    "mechanism": "seal",
}
LABELS: dict[str, Any] = dict.fromkeys(("method", "title", "paper", "preset"), str)
LABELS |= {"weighting": Literal["equal", "examples"], "tuned": dict}  # what `covey tune` says of its values
STRUCTURE = {  # fields that say what a part is: its class fixes them, no configuration does
    *("shared", "kept", "uploaded", "tables", "sequential", "pointwise", "asks", "hears", "whole_table"),
    *("needs", "sees", "knowledge"),
}
CREW = tuple(f.name for f in dataclasses.fields(AttackConfig))


@dataclass(frozen=True)
class Config:
    """A resolved configuration: plain data, every key known."""

    tree: Tree
    data: DataConfig = field(default_factory=DataConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    negatives: NegativesConfig = field(default_factory=NegativesConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    run: RunConfig = field(default_factory=RunConfig)
    engine: Engine = field(default_factory=Engine)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    fleet: FleetConfig = field(default_factory=FleetConfig)

    @classmethod
    def of(cls, tree: Tree) -> "Config":
        for key, value in tree.items():
            _known(key, [*SETTINGS, *PARTS, *LABELS], "the configuration")
            if key in LABELS:
                _fit(value, LABELS[key], key)
        _fit(tree.get("tuned", {"trials": 0}).get("trials"), int, "tuned.trials")
        config = cls(tree, **{k: fill(c, _section(tree.get(k, {}), k), k) for k, c in SETTINGS.items()})
        here = [name for name in PARTS if config.parts(name)]
        if "pooled" in here and len(here) > 1:
            other = next(name for name in here if name != "pooled")
            raise CoveyError(f"[pooled] sees everybody's data and stands alone; leave out [{other}], or [pooled]")
        if "pooled" in here and config.fleet.secure:
            raise CoveyError("[pooled] sees everybody's data, which fleet.secure hides; leave out one of them")
        for need in ("model", "objective"):
            if need not in here and "pooled" not in here:
                raise CoveyError(f"the configuration has no [{need}]; start from one: covey run --method fedncf")
        return config

    def parts(self, name: str) -> list[Any]:
        """The objects that sections [name] or [[name]] describe."""
        sections = self.tree.get(name, [])
        if name != "mechanism":
            sections = [self.tree[name]] if name in self.tree else []
        elif not isinstance(sections, list):
            raise CoveyError("mechanisms are a list: write [[mechanism]], or --set 'mechanism.+={use=\"...\"}'")
        made = []
        for section in sections:
            own = self.attack()[1] if name == "attack" else _section(section, name)
            if "use" not in own:
                raise CoveyError(f'[{name}] names no class; write use = "module:Class"')
            made.append(part_of(own, CREW if name == "attack" else ()))
            if not hasattr(made[-1], PARTS[name]):
                raise CoveyError(f'[{name}] use = {section["use"]!r} is no {name}; write use = "module:Class" of one')
        return made

    def part(self, name: str) -> Any:
        """The object that section [name] describes, or None."""
        return next(iter(self.parts(name)), None)

    def attack(self) -> tuple[AttackConfig, Tree]:
        """How many attackers from when on, and the section of what they do."""
        what = dict(_section(self.tree["attack"], "attack"))
        return fill(AttackConfig, {k: what.pop(k) for k in CREW if k in what}, "attack"), what

    def digest(self) -> str:
        """A name for this configuration: equal ones have equal digests."""
        return hashlib.sha256(json.dumps(self.tree, sort_keys=True).encode()).hexdigest()[:16]


def shipped(kind: str) -> dict[str, Path]:
    """The configurations that come with covey: "methods", "presets", "attacks", "defences" or "spaces"."""
    return {p.stem: p for p in sorted(shipped_folder(kind).glob("*.toml"))}


def shipped_folder(kind: str) -> Path:
    return Path(str(resources.files("covey"))) / "configs" / kind


def read(kind: str, name: str) -> Tree:
    """A shipped configuration by name, or a file by path."""
    if name.endswith(".toml"):
        return parse(Path(name))
    files = shipped(kind)
    if name not in files:
        raise CoveyError(f"there is no {kind.removesuffix('s')} {name!r}{_elsewhere(name) or _hint(name, files)}")
    return parse(files[name])


def _elsewhere(name: str) -> str:
    """An attack or a defence is a part of a run, and has a place of its own."""
    for kind, one in (("attacks", "an attack"), ("defences", "a defence")):
        if name in shipped(kind):
            return f"; it is {one}: covey list {kind} shows all, covey matrix --{kind} {name} runs it"
    return ""


def part_of(section: Tree, near: Iterable[str] = ()) -> Any:
    """Builds `use = "module:Class"` with the section's other keys as options; `near` are names only to hint at."""
    options = dict(section)
    use = options.pop("use", "")
    module, _, name = str(use).partition(":")
    try:
        found = import_module(module)
    except (ImportError, TypeError, ValueError) as error:
        raise CoveyError(f'cannot find {use!r}: write use = "module:Class" ({error})') from error
    cls = getattr(found, name, None)
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        own = [k for k, v in vars(found).items() if isinstance(v, type) and dataclasses.is_dataclass(v)]
        raise CoveyError(f"{module} has no part {name!r}{_hint(name, own)}")
    return fill(cls, options, name, near)


def fill(cls: type[T], options: Mapping[str, Any], where: str, near: Iterable[str] = ()) -> T:
    """A dataclass from plain data, strictly: names and types must fit."""
    hints = get_type_hints(cls)
    options_of = [f for f in dataclasses.fields(cls) if f.init and f.name not in STRUCTURE]  # type: ignore[arg-type]
    names = {f.name: f.default is f.default_factory for f in options_of}
    for key in options:
        _known(key, names, where, near)
    for key, needed in names.items():  # both are MISSING
        if needed and key not in options:
            raise CoveyError(f"{where} needs {key!r}; give it")
    return cls(**{k: _fit(v, hints[k], f"{where}.{k}") for k, v in options.items()})


def _section(value: Any, name: str) -> Tree:
    if not isinstance(value, dict):
        raise CoveyError(f"[{name}] is a section, not {value!r}; write {name}.OPTION = {value!r}")
    return value


def _fit(value: Any, hint: Any, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(value, float) and math.isnan(value):
        raise CoveyError(f"{where} = nan is no number; give one")
    truth = hint is int and isinstance(value, bool)  # an int to Python, a slip to us
    if hint is Any or (isinstance(hint, type) and isinstance(value, hint) and not truth):
        return value
    if origin is Literal:
        if value not in args:
            raise CoveyError(f"{where} = {value!r} is not valid{_hint(str(value), args)}")
        return value
    if origin in (Union, types.UnionType):
        return _fit_one(value, args, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if origin in (tuple, frozenset) and isinstance(value, list | tuple):
        inner = args[0] if args else Any
        return origin(_fit(v, inner, where) for v in value)
    if origin is dict and isinstance(value, dict):
        return {k: _fit(v, args[1], f"{where}.{k}") for k, v in value.items()}
    raise CoveyError(f"{where} = {value!r} does not fit: it takes {_name(hint)}")


def _fit_one(value: Any, hints: Iterable[Any], where: str) -> Any:
    """Of several types, the first that fits."""
    for hint in hints:
        with suppress(CoveyError):
            return _fit(value, hint, where)
    raise CoveyError(f"{where} = {value!r} does not fit: it takes {' or '.join(map(_name, hints))}")


def _name(hint: Any) -> str:
    return getattr(hint, "__name__", str(hint))


def _known(key: str, names: Iterable[str], where: str, near: Iterable[str] = ()) -> None:
    if key not in names:
        raise CoveyError(f"{where} has no option {key!r}{_hint(key, [*names, *near])}")


def _hint(word: str, names: Iterable[Any]) -> str:
    valid = [str(n) for n in names]
    near = difflib.get_close_matches(word, valid, 1, 0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(valid)}"

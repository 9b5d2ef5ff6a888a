"""A run is one TOML file; `use = "module:Class"` names what to build. Unknown keys are errors with a hint."""

import dataclasses
import difflib
import hashlib
import json
import tomllib
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module, resources
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .blocks import Engine
from .core import CoveyError
from .data.split import SplitConfig
from .evaluate.metrics import EvaluateConfig

Tree = dict[str, Any]
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
    ceilings: tuple[str, ...] = ("ease",)

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.checkpoint < 1 or self.cohort < 0 or not 0 <= self.late < 1:
            raise CoveyError("run: rounds and checkpoint are at least 1, cohort at least 0, late from 0 to below 1")


@dataclass(frozen=True)
class AttackConfig:
    """Attackers beside the honest clients; `use` in the config names what they do."""

    share: float = 0.001
    start: int = 1


SETTINGS: dict[str, type[Any]] = {
    "data": DataConfig,
    "split": SplitConfig,
    "negatives": NegativesConfig,
    "evaluate": EvaluateConfig,
    "run": RunConfig,
    "engine": Engine,
}
PARTS = ("model", "objective", "solver", "grouping", "combine", "step", "pooled", "attack")
LABELS = ("method", "title", "preset", "weighting")


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

    @classmethod
    def of(cls, tree: Tree) -> "Config":
        known = [*SETTINGS, *PARTS, *LABELS, "mechanism"]
        for key in tree:
            _known(key, known, "the configuration")
        settings = {k: fill(c, tree.get(k, {}), k) for k, c in SETTINGS.items()}
        config = cls(tree, **settings)
        for part in config.parts():
            part_of(part)
        if "pooled" not in tree:
            for need in ("model", "objective"):
                if need not in tree:
                    raise CoveyError(f"the configuration has no [{need}]; start from one: covey run --method fedncf")
        return config

    def parts(self) -> list[Tree]:
        return [self.tree[k] for k in PARTS if k in self.tree] + list(self.tree.get("mechanism", []))

    def part(self, name: str, **known: Any) -> Any:
        """The object that section [name] describes, or None."""
        return part_of(self.tree[name], **known) if name in self.tree else None

    def digest(self) -> str:
        """A name for this configuration: equal ones have equal digests."""
        return hashlib.sha256(json.dumps(self.tree, sort_keys=True).encode()).hexdigest()[:16]


def shipped(kind: str) -> dict[str, Path]:
    """The configurations that come with covey: "methods", "presets" or "studies"."""
    folder = Path(str(resources.files("covey"))) / "configs" / kind
    return {p.stem: p for p in sorted(folder.glob("*.toml"))}


def read(kind: str, name: str) -> Tree:
    """A shipped configuration by name, or a file by path."""
    if name.endswith(".toml"):
        return parse(Path(name))
    files = shipped(kind)
    if name not in files:
        raise CoveyError(f"there is no {kind.removesuffix('s')} {name!r}{_hint(name, files)}")
    return parse(files[name])


def parse(path: Path) -> Tree:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise CoveyError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise CoveyError(f"{path} is not valid TOML: {error}") from error


def merge(base: Tree, over: Tree) -> Tree:
    """`over` on top of `base`; a section that names another `use` replaces the old one."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        swap = isinstance(value, dict) and isinstance(old, dict) and value.get("use", old.get("use")) != old.get("use")
        out[key] = merge(old, value) if isinstance(value, dict) and isinstance(old, dict) and not swap else value
    return out


def assign(tree: Tree, assignments: Iterable[str]) -> Tree:
    """`a.b=c` on top of a tree; values are read as TOML, else as text."""
    for text in assignments:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise CoveyError(f"--set takes a.b=value, not {text!r}")
        nested: Any = _value(value.strip())
        for key in reversed(path.strip().split(".")):
            nested = {key: nested}
        tree = merge(tree, nested)
    return tree


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def part_of(section: Tree, **known: Any) -> Any:
    """Builds `use = "module:Class"` with the section's other keys as options."""
    options = dict(section)
    use = options.pop("use", "")
    module, _, name = str(use).partition(":")
    try:
        cls = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise CoveyError(f'cannot find {use!r}: write use = "module:Class" ({error})') from error
    if not dataclasses.is_dataclass(cls):
        raise CoveyError(f"{use!r} is not a part that can be configured")
    options |= {k: v for k, v in known.items() if k in {f.name for f in dataclasses.fields(cls)}}
    return fill(cls, options, name)  # type: ignore[arg-type]


def fill(cls: type[T], options: Mapping[str, Any], where: str) -> T:
    """A dataclass from plain data, strictly: names and types must fit."""
    hints = get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls) if f.init]  # type: ignore[arg-type]
    for key in options:
        _known(key, names, where)
    return cls(**{k: _fit(v, hints[k], f"{where}.{k}") for k, v in options.items()})


def _fit(value: Any, hint: Any, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any or (isinstance(hint, type) and isinstance(value, hint) and not (hint is int and value is True)):
        return value
    if origin is Literal:
        if value not in args:
            valid = ", ".join(map(repr, args))
            raise CoveyError(f"{where} = {value!r}: valid are {valid}{_hint(str(value), args)}")
        return value
    if origin in (Union, types.UnionType):
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if origin in (tuple, frozenset) and isinstance(value, list | tuple):
        inner = args[0] if args else Any
        return origin(_fit(v, inner, where) for v in value)
    if origin is dict and isinstance(value, dict):
        return {k: _fit(v, args[1], f"{where}.{k}") for k, v in value.items()}
    wanted = getattr(hint, "__name__", str(hint))
    raise CoveyError(f"{where} = {value!r} does not fit: it takes {wanted}")


def _known(key: str, names: Iterable[str], where: str) -> None:
    if key not in names:
        raise CoveyError(f"{where} has no option {key!r}{_hint(key, names)}")


def _hint(word: str, names: Iterable[Any]) -> str:
    valid = [str(n) for n in names]
    near = difflib.get_close_matches(word, valid, 1, 0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(valid)}"

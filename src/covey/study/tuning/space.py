"""What tuning varies: options of a method, each with a range or choices.

A space is declared in configs/spaces, one file per method, or on the command
line. A declaration is text:
`log 0.001 1`, `linear 0 0.5`, `int linear 1 10`, `int log 8 256` or `choice 0.0 1e-5 1e-4`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from covey.core.errors import CoveyError
from covey.core.toml_writer import dumps
from covey.run.config.schema import PARTS, Config
from covey.run.config.shipped import shipped
from covey.run.config.tree import Tree, assign, merge, parse

GRAMMAR = (
    "write 'log LOW HIGH', 'linear LOW HIGH', 'int log LOW HIGH', 'int linear LOW HIGH'"
    " or 'choice A B ...'"
)
EXAMPLE = "--space 'solver.lr=log 0.001 1'"
TUNABLE = tuple(name for name in PARTS if name != "attack")
Values = dict[str, Any]  # by option, such as solver.lr
Space = dict[str, "Range | Choices"]


@dataclass(frozen=True)
class Range:
    low: float
    high: float
    log: bool
    whole: bool

    def holds(self, value: Any) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high and (not self.whole or value == int(value))

    def ends(self) -> tuple[Any, ...]:
        return self.clean(self.low), self.clean(self.high)

    def at(self, share: float) -> float:
        """Return the value at this share of the range; `share` is from 0 to under 1."""
        low, high = (self.low, self.high + 1) if self.whole else (self.low, self.high)
        return self.clean(low * (high / low) ** share if self.log else low + share * (high - low))

    def clean(self, value: float) -> float:
        """Round to four significant digits, or to a whole number."""
        if self.whole:
            return min(int(value), int(self.high))
        return min(max(float(f"{value:.4g}"), self.low), self.high)

    def code(self, value: Any) -> Any:
        return value

    def distribution(self, kinds: Any) -> Any:
        """Return it for Optuna, which has the codes of values."""
        kind = kinds.IntDistribution if self.whole else kinds.FloatDistribution
        return kind(self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Choices:
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        return value in self.values

    def at(self, share: float) -> Any:
        return self.values[int(share * len(self.values))]

    def ends(self) -> tuple[Any, ...]:
        return self.values

    def clean(self, code: int) -> Any:
        return self.values[code]

    def code(self, value: Any) -> int:
        return self.values.index(value)

    def distribution(self, kinds: Any) -> Any:
        return kinds.CategoricalDistribution(range(len(self.values)))


def space_of(method: str, more: Iterable[str] = ()) -> tuple[Space, dict[str, str]]:
    """Return a method's space, parsed and as text; `more` declarations override or extend it."""
    files = shipped("spaces")
    declarations = _flat(parse(files[method])) if method in files else {}
    for text in more:
        option, equals, declaration = text.partition("=")
        if not equals or not option.strip():
            raise CoveyError(f"--space takes A.B=declaration, not {text!r}; such as {EXAMPLE}")
        declarations[option.strip()] = declaration.strip()
    if not declarations:
        raise CoveyError(f"{method} has no search space; give one: {EXAMPLE}")
    return {name: declared(text, name) for name, text in declarations.items()}, declarations


def _flat(tree: Tree, path: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in tree.items():
        out |= _flat(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
    return out


def declared(text: Any, option: str) -> Range | Choices:
    """Parse a declaration of an option; anything unknown is refused."""
    if not isinstance(text, str):
        raise CoveyError(f"the space of {option} is {text!r}, not text; {GRAMMAR}")
    words = text.split()
    whole = words[:1] == ["int"]
    kind, *rest = words[whole:] or [""]
    if kind == "choice" and rest and not whole:
        return Choices(tuple(assign({}, [f"x={word}"])["x"] for word in rest))
    if kind not in ("log", "linear") or len(rest) != 2:
        raise CoveyError(f"the space of {option} is {text!r}; {GRAMMAR}")
    try:
        low, high = (int(word) if whole else float(word) for word in rest)
    except ValueError as error:
        what = "whole numbers" if whole else "numbers"
        wrong = f"the space of {option} has {' '.join(rest)!r} where {what} are needed"
        raise CoveyError(f"{wrong}; {GRAMMAR}") from error
    if not math.isfinite(low) or not math.isfinite(high):
        raise CoveyError(f"the space of {option} is {text!r}; its ends must be finite")
    if not low < high or (kind == "log" and low <= 0):
        wrong = f"the space of {option} is {text!r}; low must be below high, and above 0 if log"
        raise CoveyError(wrong)
    return Range(low, high, kind == "log", whole)


def apply(tree: Tree, values: Mapping[str, Any]) -> Tree:
    """Return the configuration with these values."""
    lines = (dumps({"x": value}).strip().partition("= ")[2] for value in values.values())
    return assign(tree, [f"{option}={text}" for option, text in zip(values, lines)])


def check(tree: Tree, space: Space) -> Values:
    """Return the published value of each option; refuse a space whose ends the method refuses."""
    for option, axis in space.items():
        section = option.partition(".")[0]
        if section not in TUNABLE:
            there = f"the sections that can be tuned are {', '.join(TUNABLE)}"
            raise CoveyError(f"{option} is no option of a method, so it is not tuned; {there}")
        if section not in tree:
            wrong = f"the method has no [{section}] whose {option!r} could be tuned"
            raise CoveyError(f"{wrong}; see its configuration")
        for value in axis.ends():
            try:
                Config.of(apply(tree, {option: value}))
            except CoveyError as error:
                raise CoveyError(f"the space of {option} cannot have {value!r}: {error}") from error
    config = Config.of(tree)
    return {option: _published(config, option) for option in space}


def _published(config: Config, option: str) -> Any:
    """Return the value of an option without tuning, or None if it has none."""
    section, *path = option.split(".")
    found: Any = config.parts(section) if section == "mechanism" else config.part(section)
    for key in path:
        found = asdict(found) if is_dataclass(found) and not isinstance(found, type) else found
        if isinstance(found, list | tuple) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            found = found.get(key) if isinstance(found, dict) else None
    return list(found) if isinstance(found, tuple) else found


def preset(tree: Tree, values: Mapping[str, Any]) -> Tree:
    """Return only what was tuned, for any protocol; lists of mechanisms are written as a whole."""
    full, out = apply(tree, values), Tree()
    for option, value in values.items():
        section = option.partition(".")[0]
        whole = isinstance(full[section], list)
        out = merge(out, {section: full[section]} if whole else apply({}, {option: value}))
    return out

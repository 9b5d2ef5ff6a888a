"""Objects from plain data, strictly: unknown names and values that do not fit are errors with a hint."""

import dataclasses
import difflib
import math
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from covey.core.errors import CoveyError
from covey.core.trust import check, module_of, trusted

from .tree import Tree

T = TypeVar("T")


STRUCTURE = {  # fields that say what a part is: its class fixes them, no configuration does
    *(
        "shared",
        "kept",
        "uploaded",
        "tables",
        "sequential",
        "pointwise",
        "exchanges",
        "reads_reports",
        "whole_table",
    ),
    *("needs_private", "reads_uploads", "knowledge"),
}


def part_of(section: Tree, near: Iterable[str] = (), trust: Iterable[str] = ()) -> Any:
    """Builds `use = "module:Class"` with the section's other keys as options; `near` are names only to hint at.

    `trust` are modules outside of covey that it may name, beside those that are trusted already.
    """
    options = dict(section)
    cls = class_of(str(options.pop("use", "")), trust, dataclasses.is_dataclass)
    return fill(cls, options, cls.__name__, near)


def class_of(use: str, trust: Iterable[str], fits: Callable[[type[Any]], bool]) -> type[Any]:
    """The class that `module:Class` names, if its module may be imported and the class fits."""
    names = trusted(trust)
    module, _, name = use.partition(":")
    found = module_of(use, names)
    classes = {k: v for k, v in vars(found).items() if isinstance(v, type) and fits(v)}
    if name not in classes:
        raise CoveyError(f"{module} has no part {name!r}{_hint(name, classes)}")
    check(use, names, home=classes[name].__module__)  # a module of covey imports others' classes
    return classes[name]


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

"""Builds objects from plain data; an unknown name or a value that does not fit is an error."""

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
STRUCTURE = {  # fields that the class of a part fixes; no configuration can set them
    *("shared", "kept", "uploaded", "tables", "sequential", "pointwise", "exchanges"),
    *("reads_reports", "whole_table", "needs_private", "reads_uploads", "knowledge"),
}


def part_of(section: Tree, near: Iterable[str] = (), trust: Iterable[str] = ()) -> Any:
    """Builds the object that a section describes: `use = "module:Class"`, and the class's options.

    Error messages also suggest the names in `near` for a misspelt option. `trust` are modules
    outside of covey that may be named, besides those that are trusted already.
    """
    options = dict(section)
    cls = class_of(str(options.pop("use", "")), trust, dataclasses.is_dataclass)
    return fill(cls, options, cls.__name__, near)


def class_of(use: str, trust: Iterable[str], fits: Callable[[type[Any]], bool]) -> type[Any]:
    """Returns the class that `module:Class` names, if it may be imported and `fits` accepts it."""
    names = trusted(trust)
    module, _, name = use.partition(":")
    found = module_of(use, names)
    classes = {k: v for k, v in vars(found).items() if isinstance(v, type) and fits(v)}
    if name not in classes:
        raise CoveyError(f"{module} has no part {name!r}{suggestion(name, classes)}")
    check(use, names, home=classes[name].__module__)  # covey's modules import classes of others
    return classes[name]


def fill(cls: type[T], options: Mapping[str, Any], where: str, near: Iterable[str] = ()) -> T:
    """Builds a dataclass from plain data, called `where` in errors, which also suggest `near`."""
    hints = get_type_hints(cls)
    options_of = [f for f in dataclasses.fields(cls) if f.init and f.name not in STRUCTURE]  # type: ignore[arg-type]
    names = {f.name: f.default is f.default_factory for f in options_of}
    for key in options:
        check_option(key, names, where, near)
    for key, needed in names.items():  # both are MISSING
        if needed and key not in options:
            raise CoveyError(f"{where} needs {key!r}; give it")
    return cls(**{k: convert(v, hints[k], f"{where}.{k}") for k, v in options.items()})


def section_of(value: Any, name: str) -> Tree:
    """Returns the value if it is a section."""
    if not isinstance(value, dict):
        raise CoveyError(f"[{name}] is a section, not {value!r}; write {name}.OPTION = {value!r}")
    return value


def convert(value: Any, hint: Any, where: str) -> Any:
    """Returns the value as an annotation requires it, such as a tuple for a list; else an error."""
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(value, float) and math.isnan(value):
        raise CoveyError(f"{where} = nan is not a number; give one")
    truth = hint is int and isinstance(value, bool)  # Python counts a bool as an int
    if hint is Any or (isinstance(hint, type) and isinstance(value, hint) and not truth):
        return value
    if origin is Literal:
        if value not in args:
            raise CoveyError(f"{where} = {value!r} is not valid{suggestion(str(value), args)}")
        return value
    if origin in (Union, types.UnionType):
        for one in args:
            with suppress(CoveyError):
                return convert(value, one, where)
        kinds = " or ".join(map(_name, args))
        raise CoveyError(f"{where} = {value!r} does not fit: it takes {kinds}")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if origin in (tuple, frozenset) and isinstance(value, list | tuple):
        inner = args[0] if args else Any
        return origin(convert(v, inner, where) for v in value)
    if origin is dict and isinstance(value, dict):
        return {k: convert(v, args[1], f"{where}.{k}") for k, v in value.items()}
    raise CoveyError(f"{where} = {value!r} does not fit: it takes {_name(hint)}")


def _name(hint: Any) -> str:
    return getattr(hint, "__name__", str(hint))


def check_option(key: str, names: Iterable[str], where: str, near: Iterable[str] = ()) -> None:
    """Refuses a key that is not among the names."""
    if key not in names:
        raise CoveyError(f"{where} has no option {key!r}{suggestion(key, [*names, *near])}")


def suggestion(word: str, names: Iterable[Any]) -> str:
    """Ends an error message with the most similar name, or with all of them."""
    valid = [str(n) for n in names]
    near = difflib.get_close_matches(word, valid, 1, 0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(valid)}"

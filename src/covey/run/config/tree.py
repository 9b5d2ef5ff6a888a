"""Configurations as plain data: read from TOML, put on top of each other, changed at one place."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from covey.core.errors import CoveyError

Tree = dict[str, Any]
MORE = "+"  # in an assignment: the entry behind the last one of a list


def parse(path: Path) -> Tree:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CoveyError(
            f"cannot read {path}: {error.strerror}; give the path of a TOML file"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CoveyError(f"{path} is not valid TOML: {error}") from error


def merge(base: Tree, over: Tree) -> Tree:
    """`over` on top of `base`; a section that names another `use` replaces the old one."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            swap = "use" in old and value.get("use", old["use"]) != old["use"]
            value = value if swap else merge(old, value)
        out[key] = value
    return out


def assign(tree: Tree, assignments: Iterable[str]) -> Tree:
    """`a.b=c` on top of a tree, `a.0.b=c` into a list, `a.+={b=c}` behind its entries; values are TOML, else text."""
    for text in assignments:
        keys, value = assignment(text)
        tree = merge(tree, _nested(tree, keys, value, text))
    return tree


def assignment(text: str) -> tuple[list[str], Any]:
    """The place that `a.b=c` names, and the value."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise CoveyError(f"--set takes a.b=value, not {text!r}")
    return path.strip().split("."), _value(value.strip())


def _nested(old: Any, keys: list[str], value: Any, text: str) -> Any:
    """What to merge: sections in sections; of a list that is there, the whole with one entry changed."""
    if not keys:
        return value
    key, *rest = keys
    if key == MORE:
        return _longer(old, _nested(None, rest, value, text), text)
    if not isinstance(old, list):
        if key.isdecimal():
            raise CoveyError(
                f"--set {text}: there is no list to count in; a number stands for an entry of one"
            )
        return {key: _nested(old.get(key) if isinstance(old, dict) else None, rest, value, text)}
    if not key.isdecimal() or int(key) >= len(old):
        there = f"entries 0 to {len(old) - 1}" if old else "no entries"
        raise CoveyError(
            f"--set {text}: the list has {there}, not {key!r}; say which one, or {MORE} for one more"
        )
    at = int(key)
    entry = merge({key: old[at]}, {key: _nested(old[at], rest, value, text)})[key]
    return [*old[:at], entry, *old[at + 1 :]]


def _longer(old: Any, entry: Any, text: str) -> list[Any]:
    """A list of sections that is not there is empty; any other may have a default, which one entry would replace."""
    if old is None and isinstance(entry, dict):
        return [entry]
    if not isinstance(old, list):
        raise CoveyError(
            f"--set {text}: there is no list to add to; an entry is {{...}}, else give the whole list"
        )
    return [*old, entry]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text

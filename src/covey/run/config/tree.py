"""Configurations as plain data: read from TOML, merged, and changed by assignments."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from covey.core.errors import CoveyError

Tree = dict[str, Any]
APPEND = "+"  # in an assignment: a new entry at the end of a list


def parse(path: Path) -> Tree:
    """Reads a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}; give the path of a TOML file"
        raise CoveyError(message) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CoveyError(f"{path} is not valid TOML: {error}") from error


def merge(base: Tree, over: Tree) -> Tree:
    """Merges `over` into a copy of `base`; a section with another `use` replaces the old one."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            swap = "use" in old and value.get("use", old["use"]) != old["use"]
            value = value if swap else merge(old, value)
        out[key] = value
    return out


def assign(tree: Tree, assignments: Iterable[str]) -> Tree:
    """Applies assignments to a copy of a tree.

    `a.b=c` sets an option, `a.0.b=c` one in the first entry of a list, and `a.+={b=c}` appends an
    entry. A value is TOML, or else text.
    """
    for text in assignments:
        keys, value = assignment(text)
        tree = merge(tree, _nested(tree, keys, value, text))
    return tree


def assignment(text: str) -> tuple[list[str], Any]:
    """Splits `a.b=c` into the keys a and b, and the value c."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise CoveyError(f"--set takes a.b=value, not {text!r}")
    return path.strip().split("."), _value(value.strip())


def _nested(old: Any, keys: list[str], value: Any, text: str) -> Any:
    """Returns what to merge: nested sections, or a list with one entry changed."""
    if not keys:
        return value
    key, *rest = keys
    if key == APPEND:
        return _appended(old, _nested(None, rest, value, text), text)
    if not isinstance(old, list):
        if key.isdecimal():
            why = "there is no list to count in; a number stands for an entry of one"
            raise CoveyError(f"--set {text}: {why}")
        return {key: _nested(old.get(key) if isinstance(old, dict) else None, rest, value, text)}
    if not key.isdecimal() or int(key) >= len(old):
        there = f"entries 0 to {len(old) - 1}" if old else "no entries"
        why = f"the list has {there}, not {key!r}; say which one, or {APPEND} for one more"
        raise CoveyError(f"--set {text}: {why}")
    at = int(key)
    entry = merge({key: old[at]}, {key: _nested(old[at], rest, value, text)})[key]
    return [*old[:at], entry, *old[at + 1 :]]


def _appended(old: Any, entry: Any, text: str) -> list[Any]:
    """Appends to a list; only one of sections may be absent, since others may have a default."""
    if old is None and isinstance(entry, dict):
        return [entry]
    if not isinstance(old, list):
        why = "there is no list to add to; an entry is {...}, else give the whole list"
        raise CoveyError(f"--set {text}: {why}")
    return [*old, entry]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text

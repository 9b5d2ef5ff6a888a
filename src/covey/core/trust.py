"""Decides which modules a configuration may import.

A configuration, a run folder or a record is data that can come from anywhere, and importing a
module runs its code. Therefore `use = "module:Class"` may name modules of covey, and others only if
the operator has named them: with `--trust`, in the environment variable COVEY_TRUST, or with
`trust=` in Python. Trust is never stored.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from .errors import CoveyError

VARIABLE = "COVEY_TRUST"
OWN = "covey"
MOVED = {"covey.sequence_objectives": "covey.objectives.sequence"}  # old names in stored files
_named: ContextVar[frozenset[str]] = ContextVar("covey_trust", default=frozenset())


class Untrusted(CoveyError):
    """A module that is neither part of covey nor named by the operator."""


def trusted(more: Iterable[str] = ()) -> frozenset[str]:
    """The trusted modules: those in COVEY_TRUST, those of `trusting` blocks, and `more`."""
    variable = [name.strip() for name in os.environ.get(VARIABLE, "").split(",")]
    return _named.get() | _names(name for name in variable if name) | _names(more)


def _names(given: Iterable[str]) -> frozenset[str]:
    names = frozenset([given] if isinstance(given, str) else given)
    for name in names:
        if not _is_module(name):
            raise CoveyError(f"cannot trust {name!r}: give the name of a module, such as mymodel")
    return names


def _is_module(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


@contextmanager
def trusting(names: Iterable[str]) -> Iterator[None]:
    """Trusts these modules within the block, in addition to those that are trusted already."""
    before = _named.set(_named.get() | _names(names))
    try:
        yield
    finally:
        _named.reset(before)


def trust_only(names: frozenset[str]) -> None:
    """Trusts exactly these modules; for a new worker process."""
    _named.set(names)


@contextmanager
def found_here() -> Iterator[None]:
    """Within the block, the current folder is last on the path if a trusted module needs it."""
    tops = {name.partition(".")[0] for name in trusted()}
    before = list(sys.path)
    if any(top not in sys.modules and find_spec(top) is None for top in tops):
        sys.path.append(os.getcwd())
    try:
        yield
    finally:
        sys.path[:] = before


def module_of(use: str, names: frozenset[str]) -> ModuleType:
    """Imports the module of `use`, which is "module:Class", if it is covey's or in `names`."""
    module, colon, name = use.partition(":")
    if not colon or not name or not _is_module(module):
        raise CoveyError(f'cannot find {use!r}: write use = "module:Class"')
    check(use, names)
    try:
        return import_module(MOVED.get(module, module))
    except (ImportError, TypeError, ValueError) as error:
        raise CoveyError(f'cannot find {use!r}: write use = "module:Class" ({error})') from error


def check(use: str, names: frozenset[str], home: str = "") -> None:
    """Raises `Untrusted` if a class is of no trusted module; `home` defines it, if known."""
    module = home or use.partition(":")[0]
    if any(module == name or module.startswith(f"{name}.") for name in (OWN, *names)):
        return
    what = f"which is defined in {home} and" if home else "which"
    wrong = f"configuration names {use}, {what} is not part of covey; if you trust that code"
    ways = f'--trust {module} (or {VARIABLE}={module}, or trust=["{module}"] in Python)'
    raise Untrusted(f"{wrong}, say {ways}")


def check_tree(tree: Any, names: frozenset[str]) -> None:
    """Checks every `use` in plain data, without importing anything."""
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    for part in parts:
        check_tree(part, names)
    if isinstance(tree, dict) and isinstance(use := tree.get("use"), str) and ":" in use:
        check(use, names)

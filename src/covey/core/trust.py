"""The gate between a text and an import: which modules a configuration may name.

A configuration, a run folder or a record is data that may come from anybody, and importing a
module runs its code. So `use = "module:Class"` reaches modules of covey, and others only if the
operator has named them: with `--trust`, in the environment variable COVEY_TRUST, or with `trust=`
in Python. Trust is never stored.
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
MOVED = {
    "covey.sequence_objectives": "covey.objectives.sequence"
}  # modules by the names that older files use
_named: ContextVar[frozenset[str]] = ContextVar("covey_trust", default=frozenset())


class Untrusted(CoveyError):
    """A module that is neither part of covey nor named by the operator."""


def trusted(more: Iterable[str] = ()) -> frozenset[str]:
    """The modules that are trusted here: those in COVEY_TRUST, in `trusting` blocks, and `more`."""
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
    """Trusts these modules within the block, beside those that are trusted already."""
    before = _named.set(_named.get() | _names(names))
    try:
        yield
    finally:
        _named.reset(before)


def begin_with(names: frozenset[str]) -> None:
    """For a worker process: what is trusted where it was started."""
    _named.set(names)


@contextmanager
def found_here() -> Iterator[None]:
    """Puts the current folder last on the path if a trusted module is found nowhere else."""
    tops = {name.partition(".")[0] for name in trusted()}
    before = list(sys.path)
    if any(top not in sys.modules and find_spec(top) is None for top in tops):
        sys.path.append(os.getcwd())
    try:
        yield
    finally:
        sys.path[:] = before


def module_of(use: str, names: frozenset[str]) -> ModuleType:
    """Imports the module of `module:Class` if it may be named; `names` are the trusted ones."""
    module, colon, name = use.partition(":")
    if not colon or not name or not _is_module(module):
        raise CoveyError(f'cannot find {use!r}: write use = "module:Class"')
    check(use, names)
    try:
        return import_module(MOVED.get(module, module))
    except (ImportError, TypeError, ValueError) as error:
        raise CoveyError(f'cannot find {use!r}: write use = "module:Class" ({error})') from error


def check(use: str, names: frozenset[str], home: str = "") -> None:
    """Refuses a name outside of covey and of the trusted modules.

    `home` is the module that defines the class, where that is known.
    """
    module = home or use.partition(":")[0]
    if any(module == name or module.startswith(f"{name}.") for name in (OWN, *names)):
        return
    what = f"which is defined in {home} and" if home else "which"
    raise Untrusted(
        f"configuration names {use}, {what} is not part of covey; if you trust that code,"
        f' say --trust {module} (or {VARIABLE}={module}, or trust=["{module}"] in Python)'
    )


def check_tree(tree: Any, names: frozenset[str]) -> None:
    """The same for every `use` in plain data, without importing anything."""
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    for part in parts:
        check_tree(part, names)
    if isinstance(tree, dict) and isinstance(use := tree.get("use"), str) and ":" in use:
        check(use, names)

"""Watches parts and programs: a hook that changes its arguments or its own part is an error."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from covey.engine.client.program import Program
from covey.engine.method import Method

from .compare import clone, expect_same

# Hooks that get no arguments that they could change.
NOT_WATCHED = ("implements", "disclosures", "extra_floats", "can_sum", "birth")


class Watched:
    """Behaves as the part inside, and compares the arguments of every call with earlier copies."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        watch = callable(value) and name not in NOT_WATCHED
        return _checked(self._part, name, value) if watch else value


def _checked(part: Any, name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        before, own = clone((args, options)), clone(fields_of(part))
        out = hook(*args, **options)
        where = f"{type(part).__name__}.{name}"
        expect_same(before, (args, options), why=f"{where} changed what it was given")
        why = f"{where} changed its own part: return the new state instead"
        expect_same(own, fields_of(part), why=why)
        return out

    return call


def fields_of(part: Any) -> dict[str, Any]:
    """Returns the attributes of an object without its cached properties."""
    cls = type(part)
    return {
        k: v
        for k, v in vars(part).items()
        if not isinstance(getattr(cls, k, None), cached_property)
    }


def watched(method: Method) -> Method:
    """Watches all parts of a method but model, objective and solver, which its program covers."""
    names = ("grouping", "combine", "server_step")
    parts: dict[str, Any] = {name: Watched(getattr(method, name)) for name in names}
    return replace(method, mechanisms=cast(Any, tuple(map(Watched, method.mechanisms))), **parts)


def watched_program(program: Program) -> Program:
    return cast(Program, Watched(program))

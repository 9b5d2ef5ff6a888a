"""Parts and programs under watch: a hook that changes what it was given, or its own part, is named."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from covey.engine.client.program import Program
from covey.engine.method import Method

from .compare import clone, expect_same

QUIET = (
    "implements",
    "disclosures",
    "extra_floats",
    "can_sum",
    "birth",
)  # they are given nothing that could change


class Watched:
    """Behaves as the part inside, and compares every argument of every call with a copy made before it."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        return _checked(self._part, name, value) if callable(value) and name not in QUIET else value


def _checked(part: Any, name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        before, own = clone((args, options)), clone(fields_of(part))
        out = hook(*args, **options)
        where = f"{type(part).__name__}.{name}"
        expect_same(before, (args, options), why=f"{where} changed what it was given")
        expect_same(
            own, fields_of(part), why=f"{where} changed its own part: return the new state instead"
        )
        return out

    return call


def fields_of(part: Any) -> dict[str, Any]:
    """What an object holds, without what it computed once from its own options."""
    cached = {
        k
        for base in type(part).__mro__
        for k, v in vars(base).items()
        if isinstance(v, cached_property)
    }
    return {k: v for k, v in vars(part).items() if k not in cached}


def watched(method: Method) -> Method:
    """The same method with every part under watch but model, objective and solver, which its program covers."""
    watch = lambda part: cast(Any, Watched(part))
    return replace(
        method,
        mechanisms=tuple(watch(m) for m in method.mechanisms),
        grouping=watch(method.grouping),
        combine=watch(method.combine),
        server_step=watch(method.server_step),
    )


def watched_program(program: Program) -> Program:
    return cast(Program, Watched(program))

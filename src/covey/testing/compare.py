"""Copies, casts and comparisons of nested records of tensors, and parts that are watched."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from covey.engine.client.program import Program
from covey.engine.method import Method


def leaves(x: Any, path: str = "") -> dict[str, Any]:
    """Returns the tensors and values of nested records by their paths, such as "/items/0"."""
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        x = {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
    elif isinstance(x, list | tuple):
        x = dict(enumerate(x))
    if not isinstance(x, dict) or not x:
        return {path: x}
    return {at: v for k in x for at, v in leaves(x[k], f"{path}/{k}").items()}


def clone(x: Any) -> Any:
    """Returns the same structure with detached copies of all tensors; records become dicts."""
    if isinstance(x, Tensor):
        return x.detach().clone()
    if isinstance(x, dict):
        return {k: clone(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return tuple(clone(v) for v in x)
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return {f.name: clone(getattr(x, f.name)) for f in dataclasses.fields(x)}
    return x


def cast(x: Any, dtype: torch.dtype) -> Any:
    """Converts the floating tensors of nested dictionaries to another type."""
    if isinstance(x, dict):
        return {k: cast(v, dtype) for k, v in x.items()}
    return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x


def differences(a: Any, b: Any, tolerance: float | None = None) -> Iterator[str]:
    """Yields the paths at which two structures differ, in any bit if there is no tolerance."""
    one, two = leaves(a), leaves(b)
    for path in sorted({*one, *two}):
        x, y = one.get(path), two.get(path)
        if path not in one or path not in two:
            yield f"{path}: only on one side"
        elif isinstance(x, Tensor) and isinstance(y, Tensor):
            if why := _difference(x.detach(), y.detach(), tolerance):
                yield f"{path}: {why}"
        elif type(x) is not type(y) or x != y:
            yield f"{path}: {x!r} against {y!r}"


def _difference(a: Tensor, b: Tensor, tolerance: float | None) -> str:
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype} {tuple(a.shape)} against {b.dtype} {tuple(b.shape)}"
    if not a.is_floating_point():
        return "" if torch.equal(a, b) else "other values"
    if tolerance is None:
        same = a.contiguous().cpu().numpy().tobytes() == b.contiguous().cpu().numpy().tobytes()
        return "" if same else f"other bits, by {_gap(a, b):.1e}"
    if not torch.equal(a.isnan(), b.isnan()):
        return "NaN in other places"
    gap = _gap(a, b)
    return "" if gap <= tolerance else f"differs by {gap:.1e}, more than {tolerance:.0e}"


def _gap(a: Tensor, b: Tensor) -> float:
    """The largest difference, relative to the largest value if that is over 1."""
    if not a.numel():
        return 0.0
    a, b = a.double().nan_to_num(), b.double().nan_to_num()
    return float((a - b).abs().max() / a.abs().max().clamp(min=1))


def expect_same(a: Any, b: Any, tolerance: float | None = None, why: str = "") -> None:
    """Raises an error that starts with `why` and lists the differences, if there are any."""
    if found := list(differences(a, b, tolerance)):
        raise AssertionError("\n  ".join([why, *found[:12]]))


def infinite(x: Any, path: str = "") -> Iterator[str]:
    """Yields the paths of floating tensors that contain a NaN or an infinity."""
    for at, leaf in leaves(x, path).items():
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and not leaf.isfinite().all():
            yield at


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
    parts["mechanisms"] = tuple(map(Watched, method.mechanisms))
    return replace(method, **parts)


def watched_program(program: Program) -> Program:
    made: Any = Watched(program)
    return made

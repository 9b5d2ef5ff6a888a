"""Copies, casts and comparisons of nested records of tensors."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def clone(x: Any) -> Any:
    """Returns the same structure with detached copies of all tensors."""
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


def differences(a: Any, b: Any, tolerance: float | None = None, path: str = "") -> Iterator[str]:
    """Yields the paths at which two structures differ, in any bit if there is no tolerance."""
    a, b = _plain(a), _plain(b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if why := _difference(a.detach(), b.detach(), tolerance):
            yield f"{path}: {why}"
    elif isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}, key=str):
            if key not in a or key not in b:
                yield f"{path}/{key}: only on one side"
            else:
                yield from differences(a[key], b[key], tolerance, f"{path}/{key}")
    elif isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from differences(x, y, tolerance, f"{path}[{k}]")
    elif type(a) is not type(b) or a != b:
        yield f"{path}: {a!r} against {b!r}"


def _plain(x: Any) -> Any:
    if isinstance(x, list):
        return tuple(x)
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
    return x


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
    x = _plain(x)
    if isinstance(x, dict):
        for key, value in x.items():
            yield from infinite(value, f"{path}/{key}")
    elif isinstance(x, Tensor) and x.is_floating_point() and not bool(x.isfinite().all()):
        yield path

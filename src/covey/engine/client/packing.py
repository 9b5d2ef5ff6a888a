"""Packs small shared parameters into one tensor, so that a step costs one operation for all."""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from covey.contract.model import Model
from covey.core.ragged import Fields
from covey.solvers import Local

PACKED = "packed parameters"  # the name of the joint leaf
UNIT = 16  # numbers; whole vector registers


@dataclass(frozen=True)
class Packing:
    names: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, model: Model, solver: Local, params: Fields) -> "Packing":
        """All shared parameters but the tables, if the solver treats them alike."""
        names = tuple(k for k in model.shared if k not in model.tables)
        alike = not solver.phases and not set(names) & {*solver.rates, *solver.per_item}
        if not alike or len(names) < 2:
            return cls()
        return cls(names, tuple(tuple(params[k].shape[1:]) for k in names))

    @property
    def sizes(self) -> list[int]:
        used = [prod(shape) for shape in self.shapes]
        return [*used, -sum(used) % UNIT]

    def pack(self, params: Fields) -> Tensor:
        """[C or 1, P]"""
        parts = [params[k].flatten(1) for k in self.names]
        return torch.nn.functional.pad(torch.cat(parts, 1), (0, self.sizes[-1]))

    def unpack(self, packed: Tensor) -> Fields:
        """Views, by name."""
        parts = packed.split(self.sizes, 1)
        named = zip(self.names, parts, self.shapes, strict=False)
        return {k: x.unflatten(1, shape) for k, x, shape in named}

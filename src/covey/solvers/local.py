"""SGD and Adam on stacked parameters, in phases, in place.

A leaf is what moves: a kept parameter itself, or the accumulated update of a shared one. The
update is never computed as "after minus before", which loses small steps on large weights.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ..core import CoveyError, Fields

Forward = Callable[[Fields, int], Tensor]  # leaves, step -> loss [C]
Window = Callable[[int], Tensor]  # step -> flat rows [C, B] of the leaves' tables that the step touches


@dataclass(frozen=True)
class Local:
    """Local training of every client of a block.

    `phases` lists groups of parameters that are stepped one after the other on the same batch;
    empty: all at once. `rates` overrides the learning rate of a parameter; names in `per_item` are
    multiplied by the size of the catalogue (PFedRec's item rate). `state = "kept"` carries Adam's
    moments of private parameters to the next round.
    """

    optimizer: Literal["sgd", "adam"] = "adam"
    lr: float = 0.001
    epochs: int = 5
    batch: int = 0  # examples per step; 0: all
    phases: tuple[tuple[str, ...], ...] = ()
    rates: dict[str, float] = field(default_factory=dict)
    per_item: tuple[str, ...] = ()
    state: Literal["fresh", "kept"] = "fresh"
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 0:
            raise CoveyError("solver: epochs must be at least 1 and batch at least 0 (0 = all examples at once)")

    @property
    def one_gradient(self) -> bool:
        """A single plain gradient step, whose sum over clients is one weighted backward pass."""
        return self.optimizer == "sgd" and self.epochs == 1 and self.batch == 0 and len(self.phases) <= 1

    def rate(self, name: str, n_items: int) -> float:
        return self.rates.get(name, self.lr) * (n_items if name in self.per_item else 1)

    def run(
        self,
        leaves: Fields,
        forward: Forward,
        steps: int,
        n_items: int,
        memory: Fields,
        tables: tuple[str, ...] = (),
        window: Window | None = None,
    ) -> Fields:
        """Moves the leaves in place; returns Adam's state.

        With a window, a step sees only the rows of `tables` that it names, [C, B, D].
        """
        state = dict(memory)
        phases = self.phases or (tuple(leaves),)
        for step in range(steps):
            rows = window(step) if window else None
            seen = {k: _rows(v, rows) if k in tables and rows is not None else v for k, v in leaves.items()}
            for phase in phases:
                moving = [name for name in phase if name in leaves]
                for name in moving:
                    seen[name].requires_grad_()
                loss_C = forward(seen, step)
                grads = torch.autograd.grad(loss_C.sum(), [seen[n] for n in moving], allow_unused=True)
                with torch.no_grad():
                    for name, grad in zip(moving, grads, strict=True):
                        seen[name].requires_grad_(False)
                        if grad is not None:
                            self._move(name, leaves[name], grad, step, n_items, state, rows if name in tables else None)
                        if name in tables and rows is not None and phase is not phases[-1]:
                            seen[name] = _rows(leaves[name], rows)
        return state

    def _move(
        self, name: str, leaf: Tensor, grad: Tensor, step: int, n_items: int, state: Fields, rows: Tensor | None
    ) -> None:
        lr = self.rate(name, n_items)
        if self.optimizer == "sgd":
            if rows is None:
                leaf.add_(grad, alpha=-lr)
            else:
                leaf.flatten(0, 1).index_add_(0, rows.flatten(), grad.flatten(0, 1).mul_(-lr))  # alpha has no fast path
            return
        if rows is not None:  # Adam moves every row it has ever touched, so it needs the whole table's gradient
            grad = torch.zeros_like(leaf).flatten(0, 1).index_add_(0, rows.flatten(), grad.flatten(0, 1)).view_as(leaf)
        m, v = state.get(f"{name}/m"), state.get(f"{name}/v")
        if m is None or v is None:
            m, v = torch.zeros_like(leaf), torch.zeros_like(leaf)
            state[f"{name}/m"], state[f"{name}/v"] = m, v
        m.lerp_(grad, 1 - self.beta1)
        v.mul_(self.beta2).addcmul_(grad, grad, value=1 - self.beta2)
        t_C = state.get(f"{name}/t")
        if t_C is None:
            c1, c2 = 1 - self.beta1 ** (step + 1), 1 - self.beta2 ** (step + 1)
            leaf.addcdiv_(m, v.sqrt().div_(math.sqrt(c2)).add_(self.eps), value=-lr / c1)
            return
        t_C += 1  # kept state: clients have taken different numbers of steps
        wide = t_C.view(-1, *[1] * (leaf.dim() - 1)).to(leaf)
        c1_C, c2_C = 1 - self.beta1**wide, 1 - self.beta2**wide
        leaf.sub_(lr / c1_C * m / ((v / c2_C).sqrt() + self.eps))


def _rows(table_CRD: Tensor, rows_CB: Tensor) -> Tensor:
    flat = table_CRD.flatten(0, 1).index_select(0, rows_CB.flatten())  # several times faster than indexing
    return flat.view(*rows_CB.shape, *table_CRD.shape[2:])

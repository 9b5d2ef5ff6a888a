"""Local training of a block of clients: SGD and Adam on stacked parameters, in place.

A leaf is a tensor that is trained: a kept parameter itself, or the accumulated update of a shared
one. The update is never computed as "after minus before", which loses small steps on large weights.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from covey.core import CoveyError, Fields

# Where a client's numbers fill whole vector registers, the fused kernel rounds them in the same way
# whichever clients share the block.
FUSED = 16
Tensors = list[Tensor]
Forward = Callable[[Fields, int], Tensor]  # leaves and step -> loss [C]
Window = Callable[[int], Tensor]  # step -> rows [C, B] of the leaves' tables that the step touches


@dataclass(frozen=True)
class Local:
    """Local training of every client of a block."""

    optimizer: Literal["sgd", "adam"] = "adam"
    lr: float = 0.001
    epochs: int = 5
    batch: int = 0  # examples per step; 0: all
    # Parameters that are stepped one group after the other on the same batch; (): all at once.
    phases: tuple[tuple[str, ...], ...] = ()
    rates: dict[str, float] = field(default_factory=dict)  # that override `lr`, by parameter
    per_item: tuple[str, ...] = ()  # whose rate is times the number of items (PFedRec)
    # Weight of the squared norms of a client's own vectors, and of their mean over its item rows.
    decay: float = 0.0
    state: Literal["fresh", "kept"] = "fresh"  # Adam's moments of private parameters may be kept
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 0:
            wrong = "epochs must be at least 1 and batch at least 0 (0 = all examples at once)"
            raise CoveyError(f"solver: {wrong}")
        if any(rate < 0 for rate in (self.lr, self.decay, *self.rates.values())):
            raise CoveyError("solver: lr, decay and rates may not be negative")

    @property
    def one_gradient(self) -> bool:
        """Whether training is a single SGD step, whose sum over clients is one backward pass."""
        return self.optimizer == "sgd" and self.epochs == 1 and self.batch == 0 and not self.phases

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
        """Moves the leaves [C, ...] in place; returns Adam's state, the `memory` of the next round.

        `forward` computes the losses of the clients, [C], from the leaves and the step's number.
        With a `window`, a step sees only the rows [C, B, D] that it names of the item `tables`.
        """
        state = dict(memory)
        phases = self.phases or (tuple(leaves),)
        for step in range(steps):
            rows = dict.fromkeys([k for k in tables if k in leaves], window(step)) if window else {}
            seen = leaves | {k: _rows(leaves[k], rows_CB) for k, rows_CB in rows.items()}
            for phase in phases:
                moving = [name for name in phase if name in leaves]
                inputs = [seen[name].requires_grad_() for name in moving]
                loss = forward(seen, step).sum()
                grads = torch.autograd.grad(loss, inputs, allow_unused=True)
                for x in inputs:
                    x.requires_grad_(False)
                found = {k: g for k, g in zip(moving, grads, strict=True) if g is not None}
                with torch.no_grad():
                    self._move(leaves, found, step, n_items, state, rows)
                    if phase is not phases[-1]:
                        seen |= {k: _rows(leaves[k], rows[k]) for k in moving if k in rows}
        return state

    def _move(
        self, leaves: Fields, grads: Fields, step: int, n_items: int, state: Fields, rows: Fields
    ) -> None:
        """Takes a step; `rows` are those of the tables, [C, B] by name, that the gradients have."""
        if self.optimizer == "sgd":
            for name, grad in grads.items():
                lr = self.rate(name, n_items)
                if name in rows:
                    flat = grad.flatten(0, 1).mul_(-lr)  # index_add's own factor has no fast path
                    leaves[name].flatten(0, 1).index_add_(0, rows[name].flatten(), flat)
                else:
                    leaves[name].add_(grad, alpha=-lr)
            return
        # Adam moves every row that was ever touched, so it needs all rows.
        grads = {k: _whole(g, rows[k], leaves[k]) if k in rows else g for k, g in grads.items()}
        for rate in {self.rate(name, n_items) for name in grads}:
            with_rate = {k: g for k, g in grads.items() if self.rate(k, n_items) == rate}
            self._adam(leaves, with_rate, rate, step, state)

    def _adam(self, leaves: Fields, grads: Fields, lr: float, step: int, state: Fields) -> None:
        for name in grads:
            for moment in ("m", "v"):
                if f"{name}/{moment}" not in state:
                    state[f"{name}/{moment}"] = torch.zeros_like(leaves[name])
        fused = [k for k in grads if f"{k}/t" not in state and leaves[k][0].numel() % FUSED == 0]
        if fused:
            count = torch.full((), step + 1.0, device=leaves[fused[0]].device)
            first, second = ([state[f"{k}/{moment}"] for k in fused] for moment in ("m", "v"))
            params, gradients = [leaves[k] for k in fused], [grads[k].contiguous() for k in fused]
            rates = {"lr": lr, "beta1": self.beta1, "beta2": self.beta2, "eps": self.eps}
            fused_adam(params, gradients, first, second, count, **rates)
        for name in grads:
            if name not in fused:
                self._adam_single(name, leaves[name], grads[name], lr, step, state)

    def _adam_single(
        self, name: str, leaf: Tensor, grad: Tensor, lr: float, step: int, state: Fields
    ) -> None:
        """Adam where the fused kernel would round by company, or clients differ in their steps."""
        m, v, t_C = state[f"{name}/m"], state[f"{name}/v"], state.get(f"{name}/t")
        m.lerp_(grad, 1 - self.beta1)
        v.mul_(self.beta2).addcmul_(grad, grad, value=1 - self.beta2)
        if t_C is None:
            c1, c2 = 1 - self.beta1 ** (step + 1), 1 - self.beta2 ** (step + 1)
            leaf.addcdiv_(m, v.sqrt().div_(math.sqrt(c2)).add_(self.eps), value=-lr / c1)
            return
        t_C += 1  # kept state: clients have taken different numbers of steps
        wide = t_C.view(-1, *[1] * (leaf.dim() - 1)).to(leaf)
        c1_C, c2_C = 1 - self.beta1**wide, 1 - self.beta2**wide
        leaf.sub_(lr / c1_C * m / ((v / c2_C).sqrt() + self.eps))


def fused_adam(
    params: Tensors, grads: Tensors, first: Tensors, second: Tensors, count: Tensor, **rates: float
) -> None:
    """Takes a step of Adam in place, in torch's fused kernel.

    Gradients are contiguous; `first` and `second` are the moments, and `count` is the number of
    this step, from 1, as a tensor without dimensions. `rates` are lr, beta1, beta2 and eps.
    """
    options: Any = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, **rates, "weight_decay": 0.0}
    counts, plain = [count] * len(params), partial(torch._fused_adam_, amsgrad=False)
    plain(params, grads, first, second, [], counts, maximize=False, **options)


def _rows(table_CRD: Tensor, rows_CB: Tensor) -> Tensor:
    # Several times faster than indexing.
    flat = table_CRD.flatten(0, 1).index_select(0, rows_CB.flatten())
    return flat.view(*rows_CB.shape, *table_CRD.shape[2:])


def _whole(grad_CBD: Tensor, rows_CB: Tensor, like_CRD: Tensor) -> Tensor:
    """The gradient of a whole table from the gradients of the rows that a step saw."""
    flat = torch.zeros_like(like_CRD).flatten(0, 1)
    return flat.index_add_(0, rows_CB.flatten(), grad_CBD.flatten(0, 1)).view_as(like_CRD)

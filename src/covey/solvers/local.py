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

from covey.core.errors import CoveyError
from covey.core.ragged import Fields

FUSED = 16  # a client's numbers fill whole vector registers, so the fused kernel rounds alike in any company
Forward = Callable[[Fields, int], Tensor]  # leaves, step -> loss [C]
Window = Callable[
    [int], Tensor
]  # step -> flat rows [C, B] of the leaves' tables that the step touches


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
            raise CoveyError(
                "solver: epochs must be at least 1 and batch at least 0 (0 = all examples at once)"
            )
        if any(rate < 0 for rate in (self.lr, *self.rates.values())):
            raise CoveyError("solver: lr and rates may not be negative")

    @property
    def one_gradient(self) -> bool:
        """A single plain gradient step, whose sum over clients is one weighted backward pass."""
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
        """Moves the leaves in place; returns Adam's state.

        With a window, a step sees only the rows of `tables` that it names, [C, B, D].
        """
        state = dict(memory)
        phases = self.phases or (tuple(leaves),)
        for step in range(steps):
            rows = window(step) if window else None
            seen = {
                k: _rows(v, rows) if k in tables and rows is not None else v
                for k, v in leaves.items()
            }
            for phase in phases:
                moving = [name for name in phase if name in leaves]
                for name in moving:
                    seen[name].requires_grad_()
                loss_C = forward(seen, step)
                grads = torch.autograd.grad(
                    loss_C.sum(), [seen[n] for n in moving], allow_unused=True
                )
                for name in moving:
                    seen[name].requires_grad_(False)
                found = {k: g for k, g in zip(moving, grads, strict=True) if g is not None}
                with torch.no_grad():
                    self._move(leaves, found, step, n_items, state, tables, rows)
                    if rows is not None and phase is not phases[-1]:
                        seen |= {k: _rows(leaves[k], rows) for k in moving if k in tables}
        return state

    def _move(
        self,
        leaves: Fields,
        grads: Fields,
        step: int,
        n_items: int,
        state: Fields,
        tables: tuple[str, ...],
        rows: Tensor | None,
    ) -> None:
        if self.optimizer == "sgd":
            for name, grad in grads.items():
                lr = self.rate(name, n_items)
                if name in tables and rows is not None:
                    flat = grad.flatten(0, 1).mul_(-lr)  # index_add's own factor has no fast path
                    leaves[name].flatten(0, 1).index_add_(0, rows.flatten(), flat)
                else:
                    leaves[name].add_(grad, alpha=-lr)
            return
        if (
            rows is not None
        ):  # Adam moves every row it has ever touched, so it needs the whole table's gradient
            grads = {k: _whole(g, rows, leaves[k]) if k in tables else g for k, g in grads.items()}
        for rate in {self.rate(name, n_items) for name in grads}:
            self._adam(
                leaves,
                {k: g for k, g in grads.items() if self.rate(k, n_items) == rate},
                rate,
                step,
                state,
            )

    def _adam(self, leaves: Fields, grads: Fields, lr: float, step: int, state: Fields) -> None:
        for name in grads:
            if f"{name}/m" not in state:
                state[f"{name}/m"], state[f"{name}/v"] = (
                    torch.zeros_like(leaves[name]),
                    torch.zeros_like(leaves[name]),
                )
        alike = [k for k in grads if f"{k}/t" not in state and leaves[k][0].numel() % FUSED == 0]
        if alike:
            one = leaves[alike[0]]
            count = torch.full((), step + 1.0, device=one.device)
            torch._fused_adam_(
                [leaves[k] for k in alike],
                [grads[k].contiguous() for k in alike],
                [state[f"{k}/m"] for k in alike],
                [state[f"{k}/v"] for k in alike],
                [],
                [count] * len(alike),
                lr=lr,
                beta1=self.beta1,
                beta2=self.beta2,
                weight_decay=0.0,
                eps=self.eps,
                amsgrad=False,
                maximize=False,
            )
        for name in grads:
            if name not in alike:
                self._adam_plainly(name, leaves[name], grads[name], lr, step, state)

    def _adam_plainly(
        self, name: str, leaf: Tensor, grad: Tensor, lr: float, step: int, state: Fields
    ) -> None:
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


def _rows(table_CRD: Tensor, rows_CB: Tensor) -> Tensor:
    flat = table_CRD.flatten(0, 1).index_select(
        0, rows_CB.flatten()
    )  # several times faster than indexing
    return flat.view(*rows_CB.shape, *table_CRD.shape[2:])


def _whole(grad_CBD: Tensor, rows_CB: Tensor, like_CRD: Tensor) -> Tensor:
    """The gradient of a whole table from those of the rows that were looked at."""
    flat = torch.zeros_like(like_CRD).flatten(0, 1)
    return flat.index_add_(0, rows_CB.flatten(), grad_CBD.flatten(0, 1)).view_as(like_CRD)

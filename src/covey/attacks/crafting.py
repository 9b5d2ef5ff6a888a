"""Uploads made by hand: one gradient step on a loss of the attacker's own. S = imagined users, K = its items."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from covey.contract.attack import AttackView
from covey.core.messages import Upload
from covey.core.ragged import FieldDict, Fields, Ragged, Rows

Loss = Callable[
    [Fields], Tensor
]  # rows of the attacker's items [C, K, D] under "items", layers -> [C]


def one_step(view: AttackView, upload: Upload, items: Ragged, loss: Loss, rate: float) -> Upload:
    """The update: `rate` times the negative gradient of these items' rows and of the layers, and nothing else.

    `items` are ascending and distinct for each client; the loss must not look at rows beyond them.
    """
    shared, many, width = view.download.public.shared, len(view.ids_C), int(items.lengths.max())
    leaves = {
        k: shared[k].expand(many, *shared[k].shape).clone()
        for k in view.model.shared
        if k != "items"
    }
    leaves["items"] = shared["items"][items.padded(width)]
    leaves = {k: v.requires_grad_() for k, v in leaves.items()}
    grads = torch.autograd.grad(loss(leaves).sum(), list(leaves.values()), allow_unused=True)
    step = lambda leaf, grad: torch.zeros_like(leaf) if grad is None else -rate * grad
    update: FieldDict = {
        k: step(leaf, grad) for (k, leaf), grad in zip(leaves.items(), grads, strict=True)
    }
    update["items"] = Rows(items, update["items"][items.mask(width)], len(shared["items"]))
    return replace(upload, update=update)


def alike(items_K: Tensor, many: int) -> Ragged:
    """The same list for every client."""
    return Ragged(
        items_K.repeat(many), torch.arange(many + 1, device=items_K.device) * len(items_K)
    )


def imagined(view: AttackView, users: int, scale: float) -> Tensor:
    """Users that nobody has seen, drawn anew each time, [C, S, D]."""
    table_ID = view.download.public.shared["items"]
    return scale * view.rng.fold("users").normal(users, table_ID.shape[1], dtype=table_ID.dtype)


def ratings(view: AttackView, leaves: Fields, u_CSD: Tensor) -> Tensor:
    """Logits of the attacker's items for its imagined users, [C, S, K]: each of them scored as a client."""
    C, S, _ = u_CSD.shape
    wide = {k: v.repeat_interleave(S, 0) for k, v in leaves.items()}
    return view.model.score(wide, u_CSD.flatten(0, 1), wide["items"]).view(C, S, -1)


def frozen(view: AttackView, items: Ragged) -> Fields:
    """What was received, stacked for each attacker, with the rows of its items."""
    shared, many = view.download.public.shared, len(view.ids_C)
    layers = {
        k: shared[k].expand(many, *shared[k].shape) for k in view.model.shared if k != "items"
    }
    return {**layers, "items": shared["items"][items.padded()]}

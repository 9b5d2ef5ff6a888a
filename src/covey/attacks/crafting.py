"""Uploads that an attacker computes itself: one gradient step on a loss of its choice; and Adam.

Shape suffixes: S = imagined users of an attacker, K = items whose rows it uploads.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.attack import AttackView
from covey.core import FieldDict, Fields, Ragged, Rows, Upload

Loss = Callable[[Fields], Tensor]


def one_step(view: AttackView, upload: Upload, items: Ragged, loss: Loss, rate: float) -> Upload:
    """Replaces the update by one gradient step for some item rows and the shared layers.

    `items` are ascending and distinct for each client. `loss` computes a loss for each client, [C],
    from the shared layers and, under "items", the rows of `items`, [C, K, D]; it must not use the
    padding beyond a client's items. The update is -rate times the gradient.
    """
    leaves = {k: v.clone().requires_grad_() for k, v in received(view, items).items()}
    grads = torch.autograd.grad(loss(leaves).sum(), list(leaves.values()), allow_unused=True)
    update: FieldDict = {
        name: torch.zeros_like(leaf) if grad is None else -rate * grad
        for (name, leaf), grad in zip(leaves.items(), grads, strict=True)
    }
    step_CKD, height = update["items"], len(view.download.public.shared["items"])
    update["items"] = Rows(items, step_CKD[items.mask(step_CKD.shape[1])], height)
    return replace(upload, update=update)


def promoted(view: AttackView, upload: Upload, items: Ragged, u_CSD: Tensor, rate: float) -> Upload:
    """One step on the cross-entropy of rating `items` 1 for the users `u_CSD`."""

    def loss(leaves: Fields) -> Tensor:
        return F.softplus(-ratings(view, leaves, u_CSD)).mean((1, 2))

    return one_step(view, upload, items, loss, rate)


def ratings(view: AttackView, leaves: Fields, u_CSD: Tensor) -> Tensor:
    """Logits of the attacker's items for its imagined users, [C, S, K]."""
    C, S, _ = u_CSD.shape
    wide = {k: v.repeat_interleave(S, 0) for k, v in leaves.items()}
    return view.model.score(wide, u_CSD.flatten(0, 1), wide["items"]).view(C, S, -1)


def shared_params(view: AttackView) -> Fields:
    """The shared parameters, [1, ...] each."""
    return {k: view.download.public.shared[k][None] for k in view.model.shared}


def received(view: AttackView, items: Ragged) -> Fields:
    """The shared parameters for each attacker: its layers, [C, ...], and the rows of `items`."""
    params, many = shared_params(view), len(view.ids_C)
    layers = {k: v.expand(many, *v.shape[1:]) for k, v in params.items() if k != "items"}
    return {**layers, "items": params["items"][0][items.padded()]}


def adam(x: Fields, loss: Loss, steps: int, rate: float, state: Fields | None = None) -> Fields:
    """Minimises the sum of `loss`, a tensor of any shape, over its entries.

    Returns the variables, and as "name/m", "name/v" and "t" the state, which may be given again.
    """
    state, x = state or {}, {k: v.detach().clone() for k, v in x.items()}
    m = {k: state.get(f"{k}/m", torch.zeros_like(v)) for k, v in x.items()}
    v2 = {k: state.get(f"{k}/v", torch.zeros_like(v)) for k, v in x.items()}
    before = int(state.get("t", torch.tensor(0)))
    for t in range(before + 1, before + steps + 1):
        leaves = {k: v.requires_grad_() for k, v in x.items()}
        grads = torch.autograd.grad(loss(leaves).sum(), list(leaves.values()))
        for (k, leaf), g in zip(leaves.items(), grads, strict=True):
            m[k], v2[k] = 0.9 * m[k] + 0.1 * g, 0.999 * v2[k] + 0.001 * g * g
            size = (v2[k] / (1 - 0.999**t)).sqrt() + 1e-8
            x[k] = leaf.detach() - rate * (m[k] / (1 - 0.9**t)) / size
    moments = {f"{k}/m": a for k, a in m.items()} | {f"{k}/v": a for k, a in v2.items()}
    return {**x, **moments, "t": torch.tensor(before + steps)}

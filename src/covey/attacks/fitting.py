"""Adam on an attacker's own variables."""

from collections.abc import Callable

import torch
from torch import Tensor

from covey.core.ragged import Fields


def adam(
    x: Fields,
    loss: Callable[[Fields], Tensor],
    steps: int,
    rate: float,
    state: Fields | None = None,
) -> Fields:
    """The variables after so many steps, and under "name/m", "name/v" and "t" where Adam stands; `loss` is [...]."""
    x = {k: v.detach().clone() for k, v in x.items()}
    m = {k: (state or {}).get(f"{k}/m", torch.zeros_like(v)) for k, v in x.items()}
    v2 = {k: (state or {}).get(f"{k}/v", torch.zeros_like(v)) for k, v in x.items()}
    before = int((state or {}).get("t", torch.tensor(0)))
    for t in range(before + 1, before + steps + 1):
        leaves = {k: v.requires_grad_() for k, v in x.items()}
        grads = torch.autograd.grad(loss(leaves).sum(), list(leaves.values()))
        for (k, leaf), g in zip(leaves.items(), grads, strict=True):
            m[k], v2[k] = 0.9 * m[k] + 0.1 * g, 0.999 * v2[k] + 0.001 * g * g
            size = (v2[k] / (1 - 0.999**t)).sqrt() + 1e-8
            x[k] = leaf.detach() - rate * (m[k] / (1 - 0.9**t)) / size
    moments = {f"{k}/m": a for k, a in m.items()} | {f"{k}/v": a for k, a in v2.items()}
    return {**x, **moments, "t": torch.tensor(before + steps)}

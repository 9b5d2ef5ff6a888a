"""Adam for variables that an attacker trains itself."""

import torch

from covey.core.ragged import Fields

from .crafting import Loss


def adam(x: Fields, loss: Loss, steps: int, rate: float, state: Fields | None = None) -> Fields:
    """Minimises the sum of `loss`, a tensor of any shape, over its entries.

    Returns the variables, and under "name/m", "name/v" and "t" the state of Adam, which may be
    given again as `state`.
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

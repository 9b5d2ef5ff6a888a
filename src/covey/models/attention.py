"""What the transformers share: attention, layer norm and dropout.

The parameters of all layers are stacked in one tensor, [C or 1, several N, ...]. Dropout is drawn
from each client's own stream. Shape suffixes: N = layers, P and K = positions, H = heads.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core.rng import GOLDEN, Rng, mix

from .base import drop, drop_by_bits


@dataclass(frozen=True)
class Dropout:
    """Dropout at several places of a model, each with its own stream."""

    rate: float
    rng: Rng

    def __call__(self, x_CPD: Tensor, place: str) -> Tensor:
        return drop(x_CPD, self.rate, self.rng.fold(place))

    def of_map(self, a_CHPK: Tensor, place: str) -> Tensor:
        """Dropout of attention weights: a word per row, so draws do not depend on the padding."""
        if not self.rate:
            return a_CHPK
        heads, many, wide = a_CHPK.shape[1:]
        row_CHP1 = self.rng.fold(place).bits(many, heads).mT[..., None]
        column_K = GOLDEN * torch.arange(1, wide + 1, device=row_CHP1.device)
        return drop_by_bits(a_CHPK, mix(row_CHP1 + column_K), self.rate)


def layer_norm(x_CPD: Tensor, norm_C2D: Tensor) -> Tensor:
    """Layer norm with the scale and shift of each client, [C, 2, D], or of all, [1, 2, D]."""
    if len(norm_C2D) == 1:  # in one kernel
        return F.layer_norm(x_CPD, x_CPD.shape[-1:], norm_C2D[0, 0], norm_C2D[0, 1])
    return F.layer_norm(x_CPD, x_CPD.shape[-1:]) * norm_C2D[:, :1] + norm_C2D[:, 1:]


def initial_norms(many: int, dim: int) -> Tensor:
    """Scale 1 and shift 0 of so many layer norms, [many, 2, D]."""
    return torch.tensor([1.0, 0.0])[None, :, None].expand(many, 2, dim).clone()


def attention_bias(seen: Tensor) -> Tensor:
    """The bias of `attend`: 0 where a position sees another one, -inf where it does not."""
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -torch.inf)


def attend(
    q_CPD: Tensor, k_CKD: Tensor, v_CKD: Tensor, bias: Tensor, heads: int, drop: Dropout, at: str
) -> Tensor:
    """Attention of several heads, side by side, [C, P, D]: each softmax(q k' / sqrt(d) + bias) v.

    `bias` is what `attention_bias` returned, [P, K] or [C, 1, P, K]. Dropout applies to the
    attention weights and draws from the stream of that place, `at`.
    """
    q, k, v = (x.unflatten(2, (heads, -1)).transpose(1, 2) for x in (q_CPD, k_CKD, v_CKD))
    # The scale goes to q: a pass over the maps, the largest tensors here, would cost more.
    s_CHPK = (q * q.shape[-1] ** -0.5) @ k.mT
    a_CHPK = s_CHPK.add_(bias).softmax(-1)
    return (drop.of_map(a_CHPK, at) @ v).transpose(1, 2).flatten(2)


def positions(table_CLD: Tensor, many: int) -> Tensor:
    """The vectors of the first positions; positions beyond the table share its last vector."""
    place_P = torch.arange(many, device=table_CLD.device).clamp(max=table_CLD.shape[1] - 1)
    return table_CLD[:, place_P]

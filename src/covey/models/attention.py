"""What the transformers share: attention and layer norm.

Parameters of all layers stand side by side in one tensor, [C or 1, several N, ...]. Dropout comes from the
client's own stream. Shape suffixes: N = layers, P = positions, K = positions looked at, H = heads.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core.errors import CoveyError
from covey.core.rng import GOLDEN, Rng, mix

from .base import kept


@dataclass(frozen=True)
class Dropout:
    """A share of numbers set to zero. Each place in the model has its own stream."""

    rate: float
    rng: Rng

    def __call__(self, x_CPD: Tensor, place: str) -> Tensor:
        return (
            kept(x_CPD, self.rng.fold(place).bits(*x_CPD.shape[1:]), self.rate)
            if self.rate
            else x_CPD
        )

    def of_map(self, a_CHPK: Tensor, place: str) -> Tensor:
        """Of attention weights; one word for each row, so that draws do not depend on the padding."""
        if not self.rate:
            return a_CHPK
        heads, many, wide = a_CHPK.shape[1:]
        row_CHP1 = self.rng.fold(place).bits(many, heads).mT[..., None]
        return kept(
            a_CHPK,
            mix(row_CHP1 + GOLDEN * torch.arange(1, wide + 1, device=row_CHP1.device)),
            self.rate,
        )


def check_heads(dim: int, heads: int) -> None:
    if heads < 1 or dim % heads:
        raise CoveyError(
            f"model: heads = {heads} does not divide dim = {dim}; use 1 or another divisor"
        )


def normed(x_CPD: Tensor, norm_C2D: Tensor) -> Tensor:
    """Layer norm with a client's own scale and shift, or everybody's."""
    if len(norm_C2D) == 1:  # in one kernel
        return F.layer_norm(x_CPD, x_CPD.shape[-1:], norm_C2D[0, 0], norm_C2D[0, 1])
    return F.layer_norm(x_CPD, x_CPD.shape[-1:]) * norm_C2D[:, :1] + norm_C2D[:, 1:]


def flat_norms(many: int, dim: int) -> Tensor:
    """Scale 1 and shift 0, [many, 2, D]."""
    return torch.tensor([1.0, 0.0])[None, :, None].expand(many, 2, dim).clone()


def barred(seen: Tensor) -> Tensor:
    """What `attend` adds to a map: nothing where a position looks at another, -inf where it does not."""
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -torch.inf)


def attend(
    q_CPD: Tensor,
    k_CKD: Tensor,
    v_CKD: Tensor,
    barred: Tensor,
    heads: int,
    dropout: Dropout,
    place: str,
) -> Tensor:
    """softmax(q k' / sqrt(d) + barred) v in each head; `barred` is [P, K] or [C, 1, P, K].

    Maps are the largest tensors here: each pass over them costs more than one over q.
    """
    q, k, v = (x.unflatten(2, (heads, -1)).transpose(1, 2) for x in (q_CPD, k_CKD, v_CKD))
    s_CHPK = (q * q.shape[-1] ** -0.5) @ k.mT
    a_CHPK = s_CHPK.add_(barred).softmax(-1)
    return (dropout.of_map(a_CHPK, place) @ v).transpose(1, 2).flatten(2)


def positions(table_CLD: Tensor, many: int) -> Tensor:
    """The vectors of the first positions; those beyond the table share its last one."""
    place_P = torch.arange(many, device=table_CLD.device).clamp(max=table_CLD.shape[1] - 1)
    return table_CLD[:, place_P]

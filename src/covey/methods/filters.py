"""What the server computes from a sum A'A Q: the leading directions, and the gain of each.

Shape suffixes: I = items, D = directions, largest first.
"""

from typing import Literal

import torch
from torch import Tensor

from covey.core.ragged import Fields

Response = Literal["truncated", "shrunk", "linear", "gf-cf", "ease"]
LOW = 0.25  # share of the directions that GF-CF's ideal low-pass lets through
NONE = 1e-9  # an eigenvalue below this share of the largest counts as 0


def leading(q_ID: Tensor, z_ID: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """Orthonormal directions and eigenvalues of G, by Nystrom: G is about z (q'z)^-1 z'; z = G q.

    Eigenvalues of q'z below `least` times the largest are rounding and count as 0.
    """
    c_DD = q_ID.mT @ z_ID
    value_D, e_DD = torch.linalg.eigh((c_DD + c_DD.mT) / 2)
    there_D = value_D > least * value_D.max().clamp(min=torch.finfo(value_D.dtype).tiny)
    root_DD = e_DD * torch.where(there_D, value_D, 1).rsqrt() * there_D
    basis_ID, r_DD = torch.linalg.qr(z_ID)
    half_DD = r_DD @ root_DD  # G = basis half half' basis'
    lam_D, turn_DD = torch.linalg.eigh(half_DD @ half_DD.mT)
    return basis_ID @ turn_DD.flip(1), lam_D.flip(0).clamp(min=0)


def response(kind: Response, lam_D: Tensor, strength: float) -> Tensor:
    """The gain of each direction, [D]."""
    there_D = (lam_D > NONE * lam_D[0]).to(lam_D)
    place_D = torch.arange(len(lam_D), device=lam_D.device)
    if kind == "truncated":  # PureSVD: a share of the directions
        return there_D * (place_D < max(1, round(strength * len(lam_D))))
    if kind == "linear":  # A'A itself, as far as the rank goes
        return lam_D / lam_D[0].clamp(min=torch.finfo(lam_D.dtype).tiny)
    if kind == "gf-cf":  # A'A and an ideal low-pass (Shen et al., 2021, Eq. 17)
        low_D = (place_D < max(1, round(LOW * len(lam_D)))).to(lam_D)
        return response("linear", lam_D, 0) + strength * low_D * there_D
    damped_D = lam_D + strength * lam_D.mean()  # ridge
    return there_D * lam_D / damped_D.clamp(min=torch.finfo(lam_D.dtype).tiny)


def low_rank_ease(
    basis_ID: Tensor, lam_D: Tensor, diagonal_I: Tensor, half_I: Tensor, strength: float
) -> Fields:
    """EASE (Steck, 2019) of a Gram matrix that is low rank plus diagonal, as a spectral model.

    P = (E + U L U')^-1 by Woodbury's identity, with U = `basis_ID` and L = `lam_D`. Off the
    diagonal P is -H K H' with H = E^-1 U, and B = -P / diag(P): two tables that differ by a factor
    per item. `diagonal_I` is that of the normalised Gram matrix, `half_I` the power of the item
    degrees by which each side was normalised, and `strength` the damping, in means of the diagonal.
    """
    rest_I = (diagonal_I - (basis_ID**2 * lam_D).sum(1)).clamp(min=0)
    e_I = rest_I + strength * diagonal_I.mean().clamp(min=NONE)
    h_ID = basis_ID / e_I[:, None]
    least = NONE * lam_D[0].clamp(min=1)
    inner_DD = torch.diag(1 / lam_D.clamp(min=least)) + basis_ID.mT @ h_ID
    k_D, turn_DD = torch.linalg.eigh(torch.linalg.inv((inner_DD + inner_DD.mT) / 2))
    h_ID = h_ID @ turn_DD
    p_I = 1 / e_I - (h_ID**2 * k_D).sum(1)  # diag(P)
    return {"items": h_ID * (half_I / p_I)[:, None], "weight": p_I / half_I**2, "filter": k_D}

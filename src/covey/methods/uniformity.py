"""A regulariser that makes the item table uniform (Yuan et al., 2024, arXiv 2403.20107).

The paper uses it to show that uniform tables are attacked more easily. Every row moves, so uploads
are dense. Its metrics describe how flat the spectrum of the table is: the effective rank (e to the
entropy of the singular values' shares, which is the number of columns if all are equal) and the
share of the largest singular value.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.contract.views import ClientView, ServerView
from covey.core.ragged import FieldDict

from .weighted import WholeTableLoss

TINY = 1e-12


@dataclass(frozen=True)
class Uniformity(WholeTableLoss):
    """Adds the correlations between the columns of the item table to the loss."""

    weight: float = 1.0  # alpha
    name: str = "uniformity"

    def loss(self, view: ClientView) -> Tensor | None:  # Eq. 13
        return self.weight * uniformity(view.params["items"])

    def end_round(self, view: ServerView) -> FieldDict:  # Figure 3b
        """Measures how flat the table's spectrum is, also with a weight of 0."""
        value_D = torch.linalg.svdvals(view.public["items"].double())
        share_D = value_D / value_D.sum().clamp(min=TINY)
        rank = torch.exp(torch.special.entr(share_D).sum())
        return {**view.state, "tell/rank": rank, "tell/first": share_D[0]}


def uniformity(table_CID: Tensor) -> Tensor:  # Eq. 12
    """The Frobenius norm of the correlations between the table's columns, over their number, [C].

    It is 1 / sqrt(D) if no two columns are correlated, and 1 if all are.
    """
    centred_CID = table_CID - table_CID.mean(1, keepdim=True)
    z_CID = centred_CID / (centred_CID.square().sum(1, keepdim=True) + TINY).sqrt()
    corr_CDD = z_CID.mT @ z_CID
    return (corr_CDD.square().sum((1, 2)) + TINY).sqrt() / table_CID.shape[2]

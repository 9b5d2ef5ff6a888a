"""The proof of concept of Yuan et al. (2024, arXiv 2403.20107), Eq. 12 and 13: a table made uniform on purpose.

The paper shows with it that uniform tables are attacked more easily. Every row moves, so uploads are dense. It tells
how flat the spectrum of the table is: the effective rank (e to the entropy of the singular values' shares: as many as
there are columns where all are equal) and the share of the first.
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
    weight: float = 1.0  # alpha
    name: str = "uniformity"

    def loss(self, view: ClientView) -> Tensor | None:  # Eq. 13
        return self.weight * uniformity(view.params["items"])

    def end_round(self, view: ServerView) -> FieldDict:  # Figure 3b
        """How flat the table's spectrum is, with every weight, none too: the paper draws the singular values."""
        value_D = torch.linalg.svdvals(view.public["items"].double())
        share_D = value_D / value_D.sum().clamp(min=TINY)
        rank = torch.exp(torch.special.entr(share_D).sum())
        return {**view.state, "tell/rank": rank, "tell/first": share_D[0]}


def uniformity(table_CID: Tensor) -> Tensor:  # Eq. 12
    """[C]: the Frobenius norm of the correlations between the table's columns, over their number.

    At least 1 / sqrt(D), where no two columns are correlated; at most 1, where all say the same.
    """
    centred_CID = table_CID - table_CID.mean(1, keepdim=True)
    z_CID = centred_CID / (centred_CID.square().sum(1, keepdim=True) + TINY).sqrt()
    corr_CDD = z_CID.mT @ z_CID
    return (corr_CDD.square().sum((1, 2)) + TINY).sqrt() / table_CID.shape[2]

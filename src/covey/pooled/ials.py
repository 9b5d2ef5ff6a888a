"""iALS: factorisation of all users' lists by alternating least squares.

Y. Hu, Y. Koren, C. Volinsky, "Collaborative Filtering for Implicit Feedback Datasets", ICDM 2008,
regularised by frequency as in S. Rendle et al., "Revisiting the Performance of iALS on Item
Recommendation Benchmarks", RecSys 2022. Shape suffixes: C = users (or items) of a block, N = all of
them, I = items, D = width, L = items to score, or of a padded list.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from covey.core import Ragged, offsets_of, positive
from covey.evaluate.ranking import distinct

from .ease import several
from .pairs import table

BLOCK = 1 << 22  # numbers of padded rows at a time: 16 MB


@dataclass(frozen=True)
class FittedIals:
    """A vector for every item; a user's vector is computed from the user's list."""

    train: Ragged
    item_ID: Tensor
    options: "Ials"

    def score(self, users_C: Tensor) -> Tensor:
        """The best vectors for the users' lists times all items, [C, I]."""
        return self.options.solved(self.train.take(users_C), self.item_ID) @ self.item_ID.T

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        return self.score(users_C).gather(1, items_CL)

    def items(self) -> Tensor:
        return self.item_ID


@dataclass(frozen=True)
class Ials:
    """Options of the model.

    With s = u.v, the loss is the sum of (1 - s)^2 over the pairs in the lists, of `unseen` times
    s^2 over all pairs, and of `decay` times the squared length of each vector times the weight of
    all its pairs. Validation chooses where `unseen` or `decay` has several values.
    """

    dim: int = 64
    sweeps: int = 8  # each solves for all users, then for all items
    unseen: float | tuple[float, ...] = 0.1
    decay: float | tuple[float, ...] = 0.03

    def __post_init__(self) -> None:
        positive("pooled", dim=self.dim, sweeps=self.sweeps)
        for unseen, decay in self._pairs():
            positive("pooled", unseen=unseen, decay=decay)

    def _pairs(self) -> list[tuple[float, float]]:
        return list(product(several(self.unseen), several(self.decay)))

    def alternatives(self) -> list["Ials"]:
        return [replace(self, unseen=u, decay=d) for u, d in self._pairs()]

    def solver(
        self, train: Ragged, n_items: int, rough: bool = False
    ) -> Callable[["Ials"], FittedIals]:
        """A function that fits any settings; if `rough`, by half the width and the sweeps."""
        dim, sweeps = ((n + rough) // (1 + rough) for n in (self.dim, self.sweeps))
        return lambda ials: replace(ials, dim=dim, sweeps=sweeps).fit(train, n_items)

    def cost(self, train: Ragged, n_items: int) -> tuple[float, float]:
        """Multiplications of the fits, and bytes."""
        vectors, D = len(train) + n_items, self.dim
        each = self.sweeps * D**2 * (2 * len(train.values) + 3 * vectors * D)
        return (len(self._pairs()) / 8 + 2) * each, 32 * BLOCK + 16 * D * vectors

    def fit(self, train: Ragged, n_items: int) -> FittedIals:
        """Alternates from item vectors that depend on the sizes only."""
        train = distinct(train)
        counts_I = torch.bincount(train.values, minlength=n_items)
        users_T = train.owner[train.values.argsort(stable=True)]
        item_ID = 10 * table(0, "ials-items", n_items, self.dim, train.values.device)
        for _ in range(self.sweeps):
            user_ND = self.solved(train, item_ID)
            item_ID = self.solved(Ragged(users_T, offsets_of(counts_I)), user_ND)
        return FittedIals(train, item_ID, self)

    def solved(self, lists: Ragged, fixed_ND: Tensor) -> Tensor:
        """The vectors [C, D] that minimise the loss, given the vectors on the other side."""
        ((unseen, decay),) = self._pairs()
        all_DD = unseen * (fixed_ND.T @ fixed_ND)
        rows_ND = torch.cat([fixed_ND, fixed_ND.new_zeros(1, self.dim)])  # the last is padding
        decay_C = decay * (lists.lengths + unseen * len(fixed_ND))
        out_CD = fixed_ND.new_zeros(len(lists), self.dim)
        longest = max(int(lists.lengths.max()), self.dim) if len(lists) else 1
        order = lists.lengths.argsort(stable=True)  # so that a block has lists of similar lengths
        for pick in order.split(max(1, BLOCK // (longest * self.dim))):
            own = lists.take(pick)
            v_CLD = rows_ND[own.padded(fill=len(fixed_ND))]
            a_CDD = torch.baddbmm(all_DD, v_CLD.mT, v_CLD)
            a_CDD.diagonal(dim1=1, dim2=2).add_(decay_C[pick, None])
            root_CDD = torch.linalg.cholesky(a_CDD)
            out_CD[pick] = torch.cholesky_solve(v_CLD.sum(1)[..., None], root_CDD)[..., 0]
        return out_CD

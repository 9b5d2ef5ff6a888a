"""EASE: a strong pooled baseline with a closed-form solution.

H. Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019. It is the linear map B
from items to items, with a zero diagonal, that best reproduces all users' training items.
Shape suffixes: C = users of a chunk, N = all users, I = items, L = items to score.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core import Ragged, positive
from covey.evaluate.ranking import distinct

GRAM_CHUNK = 1 << 24  # entries of X at a time
SMALL = 1000  # items; a larger catalogue with fewer than half as many users is solved by users
SPARSE = 400  # how much longer a multiplication takes in a sparse product than in a dense one


@dataclass(frozen=True)
class FittedEase:
    """Item-to-item weights and the users' training items they are applied to."""

    train: Ragged
    weight_II: Tensor

    def score(self, users_C: Tensor) -> Tensor:
        """The sum of the weight rows of the user's items, [C, I]."""
        own = self.train.take(users_C)
        return F.embedding_bag(own.values, self.weight_II, own.offsets[:-1], mode="sum")

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        return self.score(users_C).gather(1, items_CL)

    def items(self) -> Tensor:
        return self.weight_II


@dataclass(frozen=True)
class Ease:
    """Options of the model; validation chooses among several weights, in ascending order."""

    weight: float | tuple[float, ...] = 300.0  # lambda: how strongly weights are regularised

    def __post_init__(self) -> None:
        for weight in several(self.weight):
            positive("pooled", weight=weight)

    def alternatives(self) -> list["Ease"]:
        return [Ease(weight) for weight in several(self.weight)]

    def fit(self, train: Ragged, n_items: int) -> FittedEase:
        """B = I - P diag(1 / diag(P)) with P = (X'X + lambda I)^-1, in double precision."""
        return self.solver(train, n_items)(self)

    def solver(self, train: Ragged, n_items: int) -> Callable[["Ease"], FittedEase]:
        """A function that fits any weight, with products that are computed once."""
        train = distinct(train)
        if n_items > max(SMALL, 2 * len(train)):
            x_NI = _dense(train, n_items).double()
            gram_NN = x_NI @ x_NI.T
            return lambda ease: FittedEase(train, _by_users(x_NI, gram_NN, *several(ease.weight)))
        gram_II = gram(train, n_items)
        return lambda ease: FittedEase(train, _by_items(gram_II, *several(ease.weight)))

    def cost(self, train: Ragged, n_items: int) -> tuple[float, float]:
        """Multiplications, and bytes; the choice fits about half of the grid."""
        n, fits = len(train), len(several(self.weight)) / 2 + 1
        if n_items > max(SMALL, 2 * n):
            return fits * n * (n_items + n) ** 2, 8 * n_items * (n_items + 4 * n)
        product = min(SPARSE * int((train.lengths**2).sum()), n * n_items**2)
        return fits * n_items**3 + product, 36 * n_items**2


def several(option: float | tuple[float, ...]) -> tuple[float, ...]:
    """The values of an option that may have one or several."""
    return option if isinstance(option, tuple) else (option,)


def _by_items(gram_II: Tensor, weight: float) -> Tensor:
    ridge_II = gram_II.clone()
    ridge_II.diagonal().add_(weight)
    p_II = torch.cholesky_inverse(torch.linalg.cholesky(ridge_II))
    b_II = p_II / -p_II.diagonal()
    # LAPACK's layout is by columns, but scores add up rows.
    return b_II.fill_diagonal_(0).float().contiguous()


def _by_users(x_NI: Tensor, gram_NN: Tensor, weight: float) -> Tensor:
    """P = (I - X'AX) / lambda with A = (XX' + lambda I)^-1: cheaper with fewer users than items."""
    ridge_NN = gram_NN.clone()
    ridge_NN.diagonal().add_(weight)
    ax_NI = torch.cholesky_solve(x_NI, torch.linalg.cholesky(ridge_NN))
    ax_NI /= 1 - (x_NI * ax_NI).sum(0)  # lambda times the diagonal of P
    return (x_NI.T.float() @ ax_NI.float()).fill_diagonal_(0)


def gram(train: Ragged, n_items: int) -> Tensor:
    """X'X, [I, I] float64: how many users have both items; single precision is exact up to 2^24."""
    device = train.values.device
    if SPARSE * int((train.lengths**2).sum()) < len(train) * n_items**2:
        from scipy.sparse import csr_matrix

        rows = train.values.cpu().numpy(), train.offsets.cpu().numpy()
        x = csr_matrix((torch.ones(len(rows[0])).double().numpy(), *rows), (len(train), n_items))
        return torch.from_numpy((x.T @ x).toarray()).to(device)
    gram_II = torch.zeros(n_items, n_items, dtype=torch.float64, device=device)
    for users_C in torch.arange(len(train), device=device).split(max(1, GRAM_CHUNK // n_items)):
        x_CI = _dense(train.take(users_C), n_items)
        gram_II += x_CI.T @ x_CI
    return gram_II


def _dense(lists: Ragged, n_items: int) -> Tensor:
    x_CI = torch.zeros(len(lists), n_items, device=lists.values.device)
    x_CI[lists.owner, lists.values] = 1
    return x_CI

"""Two views of clients' items, to contrast."""

import torch
from torch import Tensor

from covey.methods import views


def directions(
    many: list[int], n_rows: int, dim: int, aside: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two views of clients, with every third row set `aside`; weights and bars."""
    dice = torch.Generator().manual_seed(n_rows)
    one = torch.randn(len(many), n_rows, dim, generator=dice)
    two = one + 0.1 * torch.randn(len(many), n_rows, dim, generator=dice)
    place = torch.arange(n_rows)
    rows = (place < torch.tensor(many)[:, None]) & ((place % 3 > 0) | (not aside))
    weight = rows / rows.sum(1, keepdim=True).clamp(min=1)
    bar = torch.full_like(weight, -5.0).masked_fill(~rows, views.EXCLUDED)
    a, b = (views.normalised(x)[1] for x in (one, two))
    return a, b, weight, bar


def assert_equal_sums(made: tuple[Tensor, ...], plain: tuple[Tensor, ...], weight: Tensor) -> None:
    """Logs and gradients; the log of a row without weight is of no use."""
    real = (weight > 0).float()
    for name, x, y in zip(("log", "to a", "to b"), made, plain, strict=True):
        part = real if x.dim() == 2 else torch.ones_like(x)
        torch.testing.assert_close(
            x * part, y * part, rtol=2e-5, atol=2e-6, msg=lambda text, name=name: f"{name}: {text}"
        )

"""Padded sizes that depend on the client alone, so that its results do not depend on others."""

from collections.abc import Sequence

import torch
from torch import Tensor

# Padded lengths. Fewer different ones mean fewer blocks and more padding: FINE on a CPU, COARSE
# where starting an operation costs as much as padding, LAUNCHED on a GPU, where it costs far more.
FINE = (32, 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048)
COARSE = (32, 64, 128, 256, 512, 1024, 2048)
LAUNCHED = (64, 512, 1024, 2048)
FINE_BEYOND, COARSE_BEYOND = 512, 2048  # longer lengths are multiples of these

STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)  # padded numbers of steps
STEPS_BEYOND = 16  # larger numbers of steps are multiples of it


def pad_steps(n_C: Tensor) -> Tensor:
    """Rounds numbers of steps up to few different ones, because a GPU pays for every launch."""
    return _padded(n_C, STEPS, STEPS_BEYOND)


def pad_lengths(n_C: Tensor, coarse: bool = False) -> Tensor:
    """Rounds lengths up: little on a CPU, which pays for every row, more where `coarse` is set."""
    if not coarse:
        return _padded(n_C, FINE, FINE_BEYOND)
    return _padded(n_C, LAUNCHED if n_C.is_cuda else COARSE, COARSE_BEYOND)


def _padded(n_C: Tensor, sizes: Sequence[int], beyond: int) -> Tensor:
    size_S = torch.tensor(sizes, device=n_C.device)
    place = torch.searchsorted(size_S, n_C.contiguous()).clamp(max=len(size_S) - 1)
    return torch.where(n_C <= size_S[-1], size_S[place], (n_C + beyond - 1) // beyond * beyond)

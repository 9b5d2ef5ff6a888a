"""Padded sizes that depend on the client alone, so that its results do not depend on its neighbours."""

from collections.abc import Sequence

import torch
from torch import Tensor

# Padded lengths. Fewer of them mean fewer blocks, and more padding.
FINE = (32, 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048)


COARSE = (32, 64, 128, 256, 512, 1024, 2048)  # where starting an operation costs as much as padding


LAUNCHED = (64, 512, 1024, 2048)  # on a GPU, where it costs far more


FINE_BEYOND, COARSE_BEYOND = 512, 2048  # longer ones are multiples of these


STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)  # padded numbers of steps


STEPS_BEYOND = 16  # more steps are multiples of it


def pad_steps(n_C: Tensor) -> Tensor:
    """Numbers of steps that depend on the client alone, few different ones: a GPU pays for every launch."""
    return _padded(n_C, STEPS, STEPS_BEYOND)


def pad_lengths(n_C: Tensor, coarse: bool = False) -> Tensor:
    """Padded lengths that depend on the client alone: near n on a CPU, few different ones on a GPU.

    A CPU pays for every row, a GPU for every launch.
    """
    if not coarse:
        return _padded(n_C, FINE, FINE_BEYOND)
    return _padded(n_C, LAUNCHED if n_C.is_cuda else COARSE, COARSE_BEYOND)


def _padded(n_C: Tensor, ladder: Sequence[int], beyond: int) -> Tensor:
    """The next number of the ladder, or the next multiple of `beyond` where the ladder ends."""
    rungs = torch.tensor(ladder, device=n_C.device)
    place = torch.searchsorted(rungs, n_C.contiguous()).clamp(max=len(rungs) - 1)
    return torch.where(n_C <= rungs[-1], rungs[place], (n_C + beyond - 1) // beyond * beyond)

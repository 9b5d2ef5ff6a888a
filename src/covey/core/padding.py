"""Padded sizes that depend on the client alone, so that its results do not depend on its neighbours."""

import torch
from torch import Tensor

FINE = (32, 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048)


COARSE = (32, 64, 128, 256, 512, 1024, 2048)  # where starting an operation costs as much as some padding


LAUNCHED = (64, 512, 1024, 2048)  # on a GPU, where it costs far more


STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)


def pad_steps(n_C: Tensor) -> Tensor:
    """Numbers of steps that depend on the client alone, few different ones: a GPU pays for every launch."""
    steps = torch.tensor(STEPS, device=n_C.device)
    place = torch.searchsorted(steps, n_C.contiguous()).clamp(max=len(steps) - 1)
    return torch.where(n_C <= steps[-1], steps[place], (n_C + 15) // 16 * 16)


def pad_lengths(n_C: Tensor, coarse: bool = False) -> Tensor:
    """Padded lengths that depend on the client alone: near n on a CPU, few different ones on a GPU.

    A CPU pays for every row, a GPU for every launch.
    """
    steps = torch.tensor(FINE if not coarse else LAUNCHED if n_C.is_cuda else COARSE, device=n_C.device)
    place = torch.searchsorted(steps, n_C.contiguous()).clamp(max=len(steps) - 1)
    beyond = 2048 if coarse else 512
    return torch.where(n_C <= steps[-1], steps[place], (n_C + beyond - 1) // beyond * beyond)

"""How the server applies a combined update, whose negative plays the gradient of an optimiser."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from covey.contract.aggregation import ServerStep
from covey.core.ragged import FieldDict, Fields


@dataclass(frozen=True)
class Add(ServerStep):
    """Adds the update times `rate`; a rate of 1 is FedAvg."""

    rate: float = 1.0
    name: str = "server step"
    by_row: ClassVar[bool] = True

    def step(self, memory: FieldDict, params: Fields, update: Fields) -> tuple[FieldDict, Fields]:
        moved = {k: torch.add(params[k], d, alpha=self.rate) for k, d in update.items()}
        return memory, {**params, **moved}


@dataclass(frozen=True)
class Adam(ServerStep):
    """Adam on the server (FedOpt); rows that no client touched still move by their momentum."""

    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    name: str = "server step"
    by_row: ClassVar[bool] = True

    def step(self, memory: FieldDict, params: Fields, update: Fields) -> tuple[FieldDict, Fields]:
        memory, params = dict(memory), dict(params)
        for name, d in update.items():
            m, v = (_tensor(memory.get(f"{name}/{k}"), d) for k in "mv")
            t = int(memory[f"{name}/t"]) + 1 if f"{name}/t" in memory else 1
            m = self.beta1 * m - (1 - self.beta1) * d
            v = self.beta2 * v + (1 - self.beta2) * d * d
            size = (v / (1 - self.beta2**t)).sqrt() + self.eps
            params[name] = params[name] - self.lr * (m / (1 - self.beta1**t)) / size
            memory |= {f"{name}/m": m, f"{name}/v": v, f"{name}/t": torch.tensor(t)}
        return memory, params


def _tensor(value: object, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else torch.zeros_like(like)

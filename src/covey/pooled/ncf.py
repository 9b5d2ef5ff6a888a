"""The pooled multilayer perceptron of Neural Collaborative Filtering (He et al., WWW 2017).

z_0 = [u ; v], z_l = relu(W_l z_(l-1) + b_l), logit = h.z + b, trained with cross-entropy and
sampled negatives. Shape suffixes: C = users of a chunk, N = all users, I = items, D = width, H =
units of a layer, L = items to score per user, T = pairs of a user and an item.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core.rng import Rng

from .common import FitRequest, Fitted
from .mf import FittedMF
from .pairs import PairTraining, table, train_pairs

# Activations of the first layer at a time, when all items are scored.
CPU_LAYER, CUDA_LAYER = 1 << 18, 1 << 26


@dataclass(frozen=True)
class FittedNCF(FittedMF):
    """A vector for every user and item, and the layers that compare them."""

    def logit(self, users_T: Tensor, items_T: Tensor) -> Tensor:
        """The score of each pair, of the shape of users and items."""
        z = torch.cat([F.embedding(users_T, self.user_ND), F.embedding(items_T, self.item_ID)], -1)
        return self._rest(F.linear(z, *self.layers[0]))

    def _rest(self, z: Tensor) -> Tensor:
        for weight, bias in self.layers[1:]:
            z = F.linear(z.relu(), weight, bias)
        return z.squeeze(-1)

    def score(self, users_C: Tensor) -> Tensor:
        """Computes the first map of every user and item once, as it is the sum of both parts."""
        (weight, bias), D = self.layers[0], self.user_ND.shape[1]
        user_CH = F.linear(self.user_ND[users_C], weight[:, :D], bias)
        item_IH = F.linear(self.item_ID, weight[:, D:])
        numbers = CPU_LAYER if item_IH.device.type == "cpu" else CUDA_LAYER
        parts = user_CH.split(max(1, numbers // item_IH.numel()))
        return torch.cat([self._rest(part_CH[:, None] + item_IH) for part_CH in parts])

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        return self.logit(users_C[:, None].expand_as(items_CL), items_CL)


@dataclass(frozen=True)
class PooledNCF(PairTraining):
    """Options of the model and its training."""

    hidden: tuple[int, ...] = (32, 16)

    def fit(self, request: FitRequest) -> Fitted:
        seed, device = request.seed, request.device
        user_ND = table(seed, "pooled-ncf-user", len(request.train), self.dim, device)
        item_ID = table(seed, "pooled-ncf-item", request.n_items, self.dim, device)
        sizes = (2 * self.dim, *self.hidden, 1)
        layers = tuple(layer(seed, k, n, m, device) for k, (n, m) in enumerate(pairwise(sizes)))
        return train_pairs(self, FittedNCF(user_ND, item_ID, layers), request)


def layer(
    seed: int, number: int, inputs: int, outputs: int, device: torch.device | str
) -> tuple[Tensor, Tensor]:
    """Weight and bias of a linear map, uniform within 1 / sqrt(inputs), torch's default."""
    unit = Rng.server(seed, 0, f"pooled-ncf-{number}").uniform(outputs, inputs + 1)[0]
    draw = (2 * unit - 1) / inputs**0.5
    return draw[:, :-1].float().contiguous().to(device), draw[:, -1].float().contiguous().to(device)

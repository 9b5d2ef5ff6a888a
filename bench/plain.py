"""What the engine is measured against: federated rounds as a careful practitioner writes them.

One `nn.Module` is reused; per client the global weights are copied in, a `torch.optim` optimiser
takes the steps, and the change is added to running sums. No Python per sample. Names and shapes as
in covey: L = examples of a client, I = items, D = embedding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from covey.core.ragged import Fields, Ragged
from covey.solvers import Local


class NcfNet(nn.Module):
    """FedNCF: a private user vector, an item table and an MLP that everybody shares."""

    private = ("user",)
    per_item_mean = True

    def __init__(self, n_items: int, dim: int = 32, hidden: Sequence[int] = (32, 16)) -> None:
        super().__init__()
        self.user = nn.Parameter(torch.zeros(dim))
        self.items = nn.Embedding(n_items, dim)
        widths = (2 * dim, *hidden, 1)
        layers: list[nn.Module] = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.ReLU()]
        self.mlp = nn.Sequential(*layers[:-1])

    def score(self, v_LD: Tensor) -> Tensor:
        return self.mlp(torch.cat([self.user.expand_as(v_LD), v_LD], 1)).squeeze(1)

    def loss(self, z_L: Tensor, label_L: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(z_L, label_L)

    def phases(self, item_rows: nn.Parameter) -> list[list[nn.Parameter]]:
        return [[self.user, item_rows, *self.mlp.parameters()]]

    @staticmethod
    def shared_of(public: Fields) -> Fields:
        """covey's public parameters by the names of this module."""
        out = {
            "items.weight": public["items"],
            "mlp.0.weight": torch.cat([public["user_half"], public["w0"]]).T,
        }
        last = sum(k.startswith("w") for k in public)
        out |= {f"mlp.{2 * k}.weight": public[f"w{k}"].T for k in range(1, last)}
        return {
            k: v.clone()
            for k, v in (out | {f"mlp.{2 * k}.bias": public[f"b{k}"] for k in range(last)}).items()
        }


class ScoreNet(nn.Module):
    """PFedRec: a private linear score function over a shared item table."""

    private = ("affine.weight", "affine.bias")
    per_item_mean = False

    def __init__(self, n_items: int, dim: int = 32) -> None:
        super().__init__()
        self.items = nn.Embedding(n_items, dim)
        self.affine = nn.Linear(dim, 1)

    def score(self, v_LD: Tensor) -> Tensor:
        return self.affine(v_LD).squeeze(1)

    def loss(self, z_L: Tensor, label_L: Tensor) -> Tensor:
        return F.binary_cross_entropy(z_L.sigmoid(), label_L)

    def phases(self, item_rows: nn.Parameter) -> list[list[nn.Parameter]]:
        return [list(self.affine.parameters()), [item_rows]]

    @staticmethod
    def shared_of(public: Fields) -> Fields:
        return {"items.weight": public["items"].clone()}


@dataclass
class Lists:
    """The clients' own lists as arrays, cut once before anything is timed."""

    items: list[np.ndarray]
    avoid: list[np.ndarray]
    n_items: int

    @staticmethod
    def cut(lists: Ragged) -> list[np.ndarray]:
        return np.split(lists.values.numpy(), lists.offsets[1:-1].numpy())


class Loop:
    """Rounds of one method, client after client, over a dense item table."""

    def __init__(
        self,
        net: NcfNet | ScoreNet,
        lists: Lists,
        solver: Local,
        shared: Fields,
        private: Fields,
        fused: bool = False,
    ) -> None:
        self.net, self.lists, self.solver, self.shared = net, lists, solver, shared
        self.private = private  # by the module's names, [N, ...]
        self.params = dict(net.named_parameters())
        self.optimizers = self._optimizers(self.params["items.weight"], fused)
        self.rng = np.random.default_rng(0)
        self.seen_I = np.zeros(lists.n_items, bool)
        self.examples_seen = self.steps_taken = self.rows_touched = 0

    def _optimizers(
        self, item_rows: nn.Parameter, fused: bool = False
    ) -> list[torch.optim.Optimizer]:
        phases, solver = self.net.phases(item_rows), self.solver
        if solver.optimizer == "adam":
            return [torch.optim.Adam(p, lr=solver.lr, eps=solver.eps, fused=fused) for p in phases]
        of_items = solver.rate("items", self.lists.n_items)
        rates = [of_items if item_rows is p[0] else solver.lr for p in phases]
        return [torch.optim.SGD(p, lr=lr, fused=fused) for p, lr in zip(phases, rates)]

    def examples(self, client: int) -> tuple[Tensor, Tensor]:
        """Positives and four uniform negatives for each, redrawn where they are known items."""
        positive = self.lists.items[client]
        self.seen_I[self.lists.avoid[client]] = True
        drawn = self.rng.integers(self.lists.n_items, size=4 * len(positive))
        wrong = np.flatnonzero(self.seen_I[drawn])
        while len(wrong):
            drawn[wrong] = self.rng.integers(self.lists.n_items, size=len(wrong))
            wrong = wrong[self.seen_I[drawn[wrong]]]
        self.seen_I[self.lists.avoid[client]] = False
        label_L = torch.zeros(5 * len(positive), dtype=self.params["items.weight"].dtype)
        label_L[: len(positive)] = 1
        return torch.from_numpy(np.concatenate([positive, drawn])), label_L

    def round(self, ids: Sequence[int], after: Callable[[int], None] | None = None) -> None:
        """Training of these clients and aggregation; `after` looks at each trained client."""
        sums = {k: torch.zeros_like(v) for k, v in self.shared.items()}
        count_I = torch.zeros(self.lists.n_items)
        for client in ids:
            items_L, label_L = self.examples(client)
            self.examples_seen += len(items_L)
            self.train(client, items_L, label_L, sums, count_I)
            if after:
                after(client)
        for name, total in sums.items():
            per_item = name == "items.weight" and self.net.per_item_mean
            self.shared[name] += total / (count_I.clamp(min=1)[:, None] if per_item else len(ids))
        self.rows_touched += int(count_I.sum())

    def train(
        self, client: int, items_L: Tensor, label_L: Tensor, sums: Fields, count_I: Tensor
    ) -> None:
        with torch.no_grad():
            for name, value in self.shared.items():
                self.params[name].copy_(value)
            self.get(client)
        for optimizer in self.optimizers:
            optimizer.state.clear()
        self.steps(items_L, label_L, self.net.items, self.optimizers)
        with torch.no_grad():
            for name, value in self.shared.items():
                sums[name] += self.params[name] - value
            count_I[items_L.unique()] += 1
            self.put(client)

    def steps(
        self,
        items_L: Tensor,
        label_L: Tensor,
        vectors: Callable[[Tensor], Tensor],
        optimizers: list[torch.optim.Optimizer],
    ) -> None:
        size = self.solver.batch or len(items_L)
        for _ in range(self.solver.epochs):
            if size < len(items_L):
                order = torch.randperm(len(items_L))
                items_L, label_L = items_L[order], label_L[order]
            for items_B, label_B in zip(items_L.split(size), label_L.split(size)):
                self.steps_taken += 1
                for optimizer in optimizers:
                    loss = self.net.loss(self.net.score(vectors(items_B)), label_B)
                    moving = optimizer.param_groups[0]["params"]
                    optimizer.zero_grad()
                    loss.backward(inputs=moving)  # of this phase only
                    optimizer.step()

    def get(self, client: int) -> None:
        for name in self.net.private:
            self.params[name].copy_(self.private[name][client])

    def put(self, client: int) -> None:
        for name in self.net.private:
            self.private[name][client] = self.params[name]


class TouchedLoop(Loop):
    """The same, but only the rows that a client touches are parameters."""

    def train(
        self, client: int, items_L: Tensor, label_L: Tensor, sums: Fields, count_I: Tensor
    ) -> None:
        rows_R, index_L = items_L.unique(return_inverse=True)
        small = [k for k in self.shared if k != "items.weight"]
        with torch.no_grad():
            for name in small:
                self.params[name].copy_(self.shared[name])
            self.get(client)
        before_RD = self.shared["items.weight"][rows_R]
        table = nn.Parameter(before_RD.clone())
        self.steps(index_L, label_L, lambda at: F.embedding(at, table), self._optimizers(table))
        with torch.no_grad():
            for name in small:
                sums[name] += self.params[name] - self.shared[name]
            sums["items.weight"][rows_R] += table - before_RD
            count_I[rows_R] += 1
            self.put(client)


class SampledRanking:
    """HR@10 and NDCG@10 of each trained client among its candidates, scored once for both parts."""

    def __init__(self, loop: Loop, candidates: Sequence[Tensor], depth: int = 10) -> None:
        self.loop, self.depth = loop, depth
        self.parts = len(candidates)
        self.items = torch.stack(
            list(candidates), 1
        )  # [N, parts, candidates], the held-out one first
        self.hit: list[float] = []
        self.ndcg: list[float] = []

    @torch.no_grad()
    def __call__(self, client: int) -> None:
        net = self.loop.net
        z = net.score(net.items(self.items[client].flatten())).view(self.parts, -1)
        rank = 1 + (z[:, 1:] >= z[:, :1]).sum(1)
        hit = rank <= self.depth
        self.hit.append(float(hit[-1]))
        self.ndcg.append(float(torch.where(hit, 1 / torch.log2(rank + 1.0), 0)[-1]))


@torch.no_grad()
def rank_everything(
    table_ID: Tensor,
    user_ND: Tensor,
    train: Sequence[Tensor],
    parts: Sequence[Sequence[Tensor]],
    depth: int,
) -> Tensor:
    """Mean recall and NDCG of each part (validation, test), scored user by user, [parts, 2]."""
    hits: list[list[Tensor]] = [[] for _ in parts]
    for client, known in enumerate(train):
        z_I = table_ID @ user_ND[client]
        z_I[known] = -torch.inf
        for p, lists in enumerate(parts):
            held = lists[client]
            if len(held):
                hits[p].append(torch.isin(z_I.topk(depth).indices, held))
                z_I[held] = -torch.inf  # known from here on
    gain_K = 1 / torch.arange(2, depth + 2).double().log2()
    out = []
    for p, lists in enumerate(parts):
        hit_NK, many_N = (
            torch.stack(hits[p]).double(),
            torch.tensor([len(x) for x in lists if len(x)]),
        )
        ideal_N = gain_K.cumsum(0)[many_N.clamp(max=depth) - 1]
        out.append(
            torch.stack([(hit_NK.sum(1) / many_N).mean(), (hit_NK @ gain_K / ideal_N).mean()])
        )
    return torch.stack(out)

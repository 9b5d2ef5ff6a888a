"""PDC-FRS's auxiliary model: the clients' model, trained by the server on the contributed lists.

Shape suffixes: M = users that contributed, T = examples, R = rows of W examples of one user each,
B = rows or users at a time, K = items sent to a client.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.examples import local_rows, merge
from covey.core import CoveyError, FieldDict, Fields, Ragged, Rng, offsets_of
from covey.mechanism import Model, ServerView
from covey.models.base import catalogue
from covey.objectives.pairs import positives_and_negatives
from covey.solvers.local import fused_adam

CPU_SCORES = 1 << 16  # at a time, so that the hidden layers of all of them fit the cache
CUDA_SCORES = 1 << 25
PREFIX = "aux/"
WARM_UP = 3  # steps before CUDA records one
WIDTH = 8  # examples of a user in a row, which share its half of the first layer


@dataclass(frozen=True)
class Auxiliary:
    """How the auxiliary model is trained when a pass begins."""

    epochs: int
    lr: float
    batch: int  # examples
    negatives: int  # for each contributed item

    def train(self, view: ServerView, leaves: Fields, lists: Ragged) -> None:
        """Moves the parameters in place, by each contributed item and its negatives, all pooled."""
        made = self._rows(view, lists, leaves["items"])
        real, many, device = len(made[0]), max(1, self.batch // WIDTH), made[0].device
        steps, rng = -(-real // many), view.server_rng.to(device)
        # Rows of weight 0 fill the last batch.
        rows = [F.pad(x, (*(0, 0) * (x.dim() - 1), 0, steps * many - real)) for x in made]
        order_R, place_B = (torch.arange(n, device=device) for n in (steps * many, many))
        at, adam = torch.zeros_like(place_B[:1]), Adam(leaves, self.lr)

        def step() -> None:
            pick_B = order_R.index_select(0, at + place_B)
            owner_B, items_BW, y_BW, w_BW = (x.index_select(0, pick_B) for x in rows)
            with torch.enable_grad():
                u_BD = F.embedding(owner_B, leaves["user"])
                v_BWD = F.embedding(items_BW, leaves["items"].squeeze(0))
                z_BW = view.model.score(leaves, u_BD, v_BWD)
                loss = F.binary_cross_entropy_with_logits(z_BW, y_BW, w_BW, reduction="sum")
                adam.move(loss / w_BW.sum().clamp(min=1))
            at.add_(many)

        repeated = RepeatedStep(step, device)
        for leaf in leaves.values():
            leaf.requires_grad_()
        for epoch in range(self.epochs):
            order_R[:real] = rng.fold(f"order {epoch}").permutation(real)[0]
            at.zero_()
            for _ in range(steps):
                repeated()
        for leaf in leaves.values():
            leaf.requires_grad_(False)

    def _rows(self, view: ServerView, lists: Ragged, like: Tensor) -> tuple[Tensor, ...]:
        """Users [R], and the items, labels and weights (their counts) of examples, [R, W]."""
        n_items, device = view.catalogue.n_items, lists.values.device
        rng = view.server_rng.fold("negatives").streams(len(lists)).to(device)
        made = positives_and_negatives(lists, lists, n_items, self.negatives, rng)
        made = merge(made, local_rows(made, n_items))
        many_M = -(-made.items.lengths // WIDTH)
        place_T = offsets_of(many_M)[:-1][made.items.owner] * WIDTH + made.items.place
        owner_R, size = torch.repeat_interleave(many_M), int(many_M.sum()) * WIDTH
        items_RW, label_RW, weight_RW = (
            x.new_zeros(size).index_copy_(0, place_T, x).view(-1, WIDTH).to(like.device)
            for x in (made.items.values, made.label, made.weight)
        )
        return owner_R.to(like.device), items_RW, label_RW.to(like), weight_RW.to(like)


class Adam:
    """Adam in place; the count of steps is a tensor too, so that CUDA can record a step."""

    def __init__(self, leaves: Fields, lr: float) -> None:
        self.leaves, self.lr = list(leaves.values()), lr
        self.first, self.second = ([torch.zeros_like(x) for x in self.leaves] for _ in range(2))
        self.count = torch.zeros((), device=self.leaves[0].device)

    def move(self, loss: Tensor) -> None:
        grads = [g.contiguous() for g in torch.autograd.grad(loss, self.leaves)]
        self.count.add_(1)
        with torch.no_grad():
            fused_adam(self.leaves, grads, self.first, self.second, self.count, lr=self.lr)


@dataclass
class RepeatedStep:
    """A step in place that is repeated; CUDA records its hundred small kernels and replays them."""

    step: Callable[[], None]
    device: torch.device
    times: int = 0
    graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self.device.type != "cuda":
            self.step()
        elif self.graph is None and self.times < WARM_UP:
            # On a side stream, as CUDA asks for before a step is recorded.
            here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
            aside.wait_stream(here)
            with torch.cuda.stream(aside):
                self.step()
            here.wait_stream(aside)
            self.times += 1
        else:
            if self.graph is None:
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph):  # which runs nothing yet
                    self.step()
            self.graph.replay()


def init_auxiliary(model: Model, n_items: int, rng: Rng, like: Tensor) -> FieldDict:
    """The state of an untrained auxiliary model without users, on the device of `like`."""
    more = set(model.kept) - {"user", "items"}
    if model.tables != ("items",) or more:
        wrong = "the auxiliary model needs all parameters but the user's vector to be shared, as in"
        keeps = f"{type(model).__name__} keeps {', '.join(sorted(more)) or 'other tables'}"
        raise CoveyError(f"{wrong} covey.models.ncf:NCF; {keeps}")
    params = {k: v[None] for k, v in model.public(n_items, rng.fold("auxiliary")).items()}
    params = {"user": model.private(rng.streams(0), rng)["user"], **params}
    return {PREFIX + k: v.to(like) for k, v in params.items()}


def parameters(state: FieldDict) -> Fields:
    """The auxiliary model's parameters in the mechanism's state."""
    return {k.removeprefix(PREFIX): v for k, v in state.items() if k.startswith(PREFIX)}


def top_items(view: ServerView, params: Fields, lists: Ragged, me_C: Tensor, k: int) -> FieldDict:
    """Eq. 6: the items that score highest for each client, and their scores.

    Items of the contributed `lists` are left out. `me_C` is the user that each client is; -1 is an
    unknown client, which gets no items.
    """
    at_once = CPU_SCORES if params["items"].device.type == "cpu" else CUDA_SCORES
    shared, parts = {k: v for k, v in params.items() if k != "user"}, []
    for row_B in me_C.split(max(1, at_once // view.catalogue.n_items)):
        known_B = row_B.clamp(min=0)
        z_BI = catalogue(view.model, shared, params["user"][known_B])
        own = lists.take(known_B)
        z_BI[own.owner, own.values] = float("-inf")
        z_BI[row_B < 0] = float("-inf")
        parts.append(z_BI.topk(min(k, z_BI.shape[1])))
    z_CK, items_CK = torch.cat([p.values for p in parts]), torch.cat([p.indices for p in parts])
    real_CK = z_CK > float("-inf")
    items = Ragged(items_CK[real_CK], offsets_of(real_CK.sum(1)))
    return {"items": items, "scores": items.like(z_CK[real_CK].sigmoid())}


def synthetic_users(users_MD: Tensor, many: int, rng: Rng) -> Tensor:
    """Draws users from the normal distribution with the mean and covariance of all, [K, D]."""
    mean_D = users_MD.mean(0)
    apart_MD = users_MD - mean_D
    values_D, axes_DD = torch.linalg.eigh(apart_MD.mT @ apart_MD / max(len(users_MD) - 1, 1))
    z_KD = rng.normal(many, len(mean_D), dtype=users_MD.dtype)[0].to(users_MD.device)
    return mean_D + (z_KD * values_D.clamp(min=0).sqrt()) @ axes_DD.mT

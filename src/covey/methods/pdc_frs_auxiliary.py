"""PDC-FRS's auxiliary model: the clients' model, trained by the server on the contributed lists.

Shape suffixes: M = users that contributed, T = examples, R = rows of W examples of one user each,
B = rows or users at once, K = items sent to a client.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.examples import local_rows, merge
from covey.contract.model import Model
from covey.contract.views import ServerView
from covey.core.errors import CoveyError
from covey.core.ragged import FieldDict, Fields, Ragged, offsets_of
from covey.core.rng import Rng
from covey.models.base import catalogue
from covey.objectives.pairs import positives_and_negatives

CPU_SCORES = (
    1 << 16
)  # that are computed at once, so that the hidden layers of all of them stay in the cache
CUDA_SCORES = 1 << 25
PREFIX = "aux/"
UNRECORDED = 3  # steps before CUDA records one
WIDTH = 8  # examples of a user that stand together, so that its half of the first layer is computed once for them


@dataclass(frozen=True)
class Auxiliary:
    """How the auxiliary model learns when a pass opens."""

    epochs: int
    lr: float
    batch: int  # examples
    negatives: int  # for each contributed item

    def train(self, view: ServerView, leaves: Fields, lists: Ragged) -> None:
        """Moves the leaves: each contributed item with its negatives, all users pooled."""
        made = self._rows(view, lists, leaves["items"])
        real, many, device = len(made[0]), max(1, self.batch // WIDTH), made[0].device
        steps, dice = -(-real // many), view.server_rng.to(device)
        rows = [
            F.pad(x, (*(0, 0) * (x.dim() - 1), 0, steps * many - real)) for x in made
        ]  # of weight 0
        order_R, near_B = (
            torch.arange(steps * many, device=device),
            torch.arange(many, device=device),
        )
        at, adam = torch.zeros_like(near_B[:1]), Adam.of(leaves, self.lr)

        def step() -> None:
            pick_B = order_R.index_select(0, at + near_B)
            owner_B, items_BW, y_BW, w_BW = (x.index_select(0, pick_B) for x in rows)
            with torch.enable_grad():
                u_BD, v_BWD = (
                    F.embedding(owner_B, leaves["user"]),
                    F.embedding(items_BW, leaves["items"].squeeze(0)),
                )
                z_BW = view.model.score(leaves, u_BD, v_BWD)
                loss = F.binary_cross_entropy_with_logits(z_BW, y_BW, w_BW, reduction="sum")
                adam.move(loss / w_BW.sum().clamp(min=1))
            at.add_(many)

        again = Again(step, device)
        for leaf in leaves.values():
            leaf.requires_grad_()
        for epoch in range(self.epochs):
            order_R[:real] = dice.fold(f"order {epoch}").permutation(real)[0]
            at.zero_()
            for _ in range(steps):
                again()
        for leaf in leaves.values():
            leaf.requires_grad_(False)

    def _rows(
        self, view: ServerView, lists: Ragged, like: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Users [R], and items, labels and weights [R, W]: every user's examples in rows of W, padded with weight 0.

        An item that is drawn for several positives stands once, with its count as weight.
        """
        n_items, streams = (
            view.catalogue.n_items,
            view.server_rng.fold("negatives").streams(len(lists)),
        )
        rng = streams.to(lists.values.device)
        made = positives_and_negatives(lists, lists, n_items, self.negatives, rng)
        made = merge(made, local_rows(made, n_items))
        many_M = -(-made.items.lengths // WIDTH)
        place_T = offsets_of(many_M)[:-1][made.items.owner] * WIDTH + made.items.place
        flat = lambda x: (
            x.new_zeros(int(many_M.sum()) * WIDTH).index_copy_(0, place_T, x).view(-1, WIDTH)
        )
        owner_R = torch.repeat_interleave(many_M).to(like.device)
        items_RW, label_RW, weight_RW = (
            flat(x).to(like.device) for x in (made.items.values, made.label, made.weight)
        )
        return owner_R, items_RW, label_RW.to(like), weight_RW.to(like)


@dataclass(frozen=True)
class Adam:
    """In place, with a count of steps that is a tensor too: nothing of a step is known outside the device."""

    leaves: list[Tensor]
    first: list[Tensor]  # moments
    second: list[Tensor]
    count: Tensor
    lr: float

    @classmethod
    def of(cls, leaves: Fields, lr: float) -> "Adam":
        moving = list(leaves.values())
        zeros = lambda: [torch.zeros_like(x) for x in moving]
        return cls(moving, zeros(), zeros(), torch.zeros((), device=moving[0].device), lr)

    def move(self, loss: Tensor) -> None:
        grads = [g.contiguous() for g in torch.autograd.grad(loss, self.leaves)]
        self.count.add_(1)
        counts = [self.count] * len(grads)
        with torch.no_grad():
            torch._fused_adam_(
                self.leaves,
                grads,
                self.first,
                self.second,
                [],
                counts,
                lr=self.lr,
                beta1=0.9,
                beta2=0.999,
                weight_decay=0.0,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )


@dataclass
class Again:
    """A step that works in place, over and over. CUDA records it after a few times, and then plays it back.

    It is a hundred small kernels, which take much longer to ask for one by one than to run.
    """

    step: Callable[[], None]
    device: torch.device
    times: int = 0
    graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self.device.type != "cuda":
            self.step()
        elif self.graph is None and self.times < UNRECORDED:
            self._aside()
        else:
            self.graph = self.graph or self._recorded()
            self.graph.replay()

    def _aside(self) -> None:
        """What is recorded later must have run before, on a stream of its own."""
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            self.step()
        here.wait_stream(aside)
        self.times += 1

    def _recorded(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # which runs nothing yet
            self.step()
        return graph


def started(model: Model, n_items: int, dice: Rng, like: Tensor) -> FieldDict:
    """An untrained auxiliary model that knows nobody yet."""
    more = set(model.kept) - {"user", "items"}
    if model.tables != ("items",) or more:
        raise CoveyError(
            "the auxiliary model needs everything but the user's vector to be shared, as in covey.models.ncf:NCF;"
            f" {type(model).__name__} keeps {', '.join(sorted(more)) or 'other tables'}"
        )
    public = model.public(n_items, dice.fold("auxiliary"))
    nobody = model.private(dice.streams(0), dice)["user"]
    return {
        f"{PREFIX}user": nobody.to(like),
        **{PREFIX + k: v[None].to(like) for k, v in public.items()},
    }


def parameters(memory: FieldDict) -> Fields:
    return {k.removeprefix(PREFIX): v for k, v in memory.items() if k.startswith(PREFIX)}


def best(
    view: ServerView, params: Fields, lists: Ragged, me_C: Tensor, count: int
) -> FieldDict:  # Eq. 6
    """The items that score highest of those that a client did not contribute; none where it is unknown (-1)."""
    at_once = CPU_SCORES if params["items"].device.type == "cpu" else CUDA_SCORES
    shared, parts = {k: v for k, v in params.items() if k != "user"}, []
    for row_B in me_C.split(max(1, at_once // view.catalogue.n_items)):
        known_B = row_B.clamp(min=0)
        z_BI = catalogue(view.model, shared, params["user"][known_B])
        said = lists.take(known_B)
        z_BI[said.owner, said.values] = float("-inf")
        z_BI[row_B < 0] = float("-inf")
        parts.append(z_BI.topk(min(count, z_BI.shape[1])))
    z_CK, items_CK = torch.cat([p.values for p in parts]), torch.cat([p.indices for p in parts])
    real_CK = z_CK > float("-inf")
    items = Ragged(items_CK[real_CK], offsets_of(real_CK.sum(1)))
    return {"items": items, "scores": items.like(z_CK[real_CK].sigmoid())}


def made_up(users_MD: Tensor, many: int, dice: Rng) -> Tensor:
    """[K, D]: users that nobody is, drawn from the normal distribution with the mean and spread of all."""
    mean_D = users_MD.mean(0)
    apart_MD = users_MD - mean_D
    values_D, axes_DD = torch.linalg.eigh(apart_MD.mT @ apart_MD / max(len(users_MD) - 1, 1))
    z_KD = dice.normal(many, len(mean_D), dtype=users_MD.dtype)[0].to(users_MD.device)
    return mean_D + (z_KD * values_D.clamp(min=0).sqrt()) @ axes_DD.mT

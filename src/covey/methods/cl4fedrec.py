"""CL4FedRec and its popularity regulariser (Yuan et al., 2024, arXiv 2403.20107).

Clients contrast two noisy views of their user vector with synthetic users, and two views of each
of their items with each other; the server keeps hot items apart from normal ones. The server is
assumed to know how popular the items are.

S = synthetic users, N = items of each, H = hot items, P = sampled normal items.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..aggregate.step import Adam
from ..core import Catalogue, CoveyError, Drawer, Fields, Ragged, Sent, Upload, positive
from ..examples import Batch
from ..mechanism import ClientView, Mechanism, ServerView
from ..models.base import rows
from ..rng import Rng
from ..solvers import Local
from .views import Reduction, Which, contrasted_rows, few_items_loss, item_loss, noise, tile_rows

ADAM_EPS = 1e-8


@dataclass(frozen=True)
class Contrast(Mechanism):
    """Eq. 4-11: user and item contrast beside the recommendation loss."""

    users: int = 60  # |U_syn|
    history: int = 30  # N
    draw: Literal["popularity", "uniform"] = "popularity"  # how histories are drawn; uniform: Table 5
    refit_steps: int = 5  # of Adam in Eq. 5, each on all examples; 0 leaves the users at their random start
    refit_lr: float = 0.001
    fit_first: bool = True  # Eq. 5 before the first round too; the listing begins after it
    eta: float = 0.1
    tau: float = 0.2
    user_weight: float = 0.5  # lambda_1
    item_weight: float = 0.5  # lambda_2
    item_views: Literal["step", "noise"] = "step"  # Eq. 8; or noise of length eta: Table 5
    view_step: Literal["adam", "sgd"] = "adam"  # of Eq. 8
    view_lr: float = 0.001
    items: Which = "all"  # of a client's examples: all distinct ones, or the positives
    reduction: Reduction = "mean"  # over the items of Eq. 10, which prints a sum
    views: Literal["once", "each step"] = "once"  # per participation; a step of all examples is a local epoch
    name: str = "contrast"
    needs: tuple[str, ...] = ("user",)

    def __post_init__(self) -> None:
        positive(self.name, users=self.users, history=self.history, tau=self.tau)

    # server: synthetic users
    def init(self, view: ServerView, enrolment: Upload | None) -> Drawer:  # Eq. 4
        if not view.objective.pointwise:
            raise CoveyError(f"{self.name} learns from one item at a time: use covey.objectives:Bce")
        count_I = popularity(view.catalogue)
        weight_I = count_I if self.draw == "popularity" else torch.ones_like(count_I)
        items_SN = _draw(weight_I, self.users, self.history, view.dice.fold("histories"))
        born = view.model.private(view.dice.fold("birth").streams(self.users), view.dice.fold("start"))
        s_SD = born["user"].to(view.public["items"])
        return {"items": items_SN, "user": self._refit(view, s_SD, items_SN) if self.fit_first else s_SD}

    def finish(self, view: ServerView) -> Drawer:
        if not view.round.closes_epoch:
            return view.memory
        return {**view.memory, "user": self._refit(view, view.memory["user"], view.memory["items"])}

    def _refit(self, view: ServerView, s_SD: Tensor, items_SN: Tensor) -> Tensor:  # Eq. 5
        """The synthetic users as a cohort of clients whose public parameters stand still."""
        offsets = torch.arange(len(s_SD) + 1, device=items_SN.device) * items_SN.shape[1]
        lists = Ragged(items_SN.flatten(), offsets)
        rng = view.dice.fold("negatives").streams(len(s_SD))
        made = view.objective.examples(lists, lists, view.catalogue.n_items, rng)
        wide = lambda x: made.items.like(x).padded().to(s_SD.device)
        items_SL, weight_SL = wide(made.items.values), wide(made.weight)
        batch = Batch(items_SL, weight_SL > 0, None, wide(made.label), weight_SL)
        frozen = {k: v[None] for k, v in view.public.items()}
        frozen["items"] = rows(frozen["items"], items_SL)
        ready = view.objective.prepare(batch)
        forward = lambda moving, _: view.objective.loss(view.model, {**frozen, **moving}, batch, ready, rng, None)
        leaves = {"user": s_SD.clone()}
        Local("adam", lr=self.refit_lr).run(leaves, forward, self.refit_steps, view.catalogue.n_items, {})
        return leaves["user"]

    def send(self, view: ServerView) -> Sent:
        return Sent(shared={"users": view.memory["user"]}) if view.step == "train" else Sent()

    # client: two views of the user, two of each item
    def prepare(self, view: ClientView) -> Fields:
        assert view.batch is not None
        made = {"rows": contrasted_rows(view.batch, self.items)}
        return made | self._views(view) if self.views == "once" else made

    def _views(self, view: ClientView) -> Fields:
        u_CD, v_CRD = view.user().detach(), view.params["items"].detach()
        made = {name: noise(u_CD, self.eta, view.rng.fold(name)) for name in ("one", "two")}  # Eq. 6
        if self.item_weight and self.item_views == "noise":
            made |= {f"items {name}": noise(v_CRD, self.eta, view.rng.fold(f"items {name}")) for name in made}
        elif self.item_weight:
            made |= {f"items {name}": self._step(view, u_CD + e_CD) for name, e_CD in made.items()}
        return made

    def _step(self, view: ClientView, u_CD: Tensor) -> Tensor:  # Eq. 8: a first step, of Adam about lr * sign
        v_CRD = view.params["items"].detach().requires_grad_()
        frozen = {k: v.detach() for k, v in view.params.items()} | {"items": v_CRD}
        (grad_CRD,) = torch.autograd.grad(view.recommend(frozen, u_CD).sum(), v_CRD)
        size = grad_CRD.abs() + ADAM_EPS if self.view_step == "adam" else 1.0
        return -self.view_lr * grad_CRD / size

    def loss(self, view: ClientView) -> Tensor | None:  # Eq. 11
        if not self.user_weight and not self.item_weight:
            return None
        ready, parts = view.prepared, []
        ready = ready if self.views == "once" else ready | self._views(view)
        if self.user_weight:
            loss_C = user_loss(view.user(), ready["one"], ready["two"], view.sent.shared["users"], self.tau)
            parts.append(self.user_weight * loss_C)
        if self.item_weight:
            parts.append(self.item_weight * self._item_loss(view.params["items"], ready))
        return torch.stack(parts).sum(0)

    def _item_loss(self, v_CRD: Tensor, ready: Fields) -> Tensor:  # Eq. 9 and 10
        one_CRD, two_CRD, rows_CR = ready["items one"], ready["items two"], ready["rows"]
        if self.items == "positives":
            return few_items_loss(v_CRD, one_CRD, two_CRD, rows_CR, self.tau, self.reduction)
        return item_loss(v_CRD + one_CRD, v_CRD + two_CRD, rows_CR, self.tau, self.reduction)

    def floats(self, n_rows: int) -> int:
        return tile_rows(n_rows) * n_rows if self.item_weight else 0


@dataclass(frozen=True)
class PopularityRegulariser(Mechanism):
    """Eq. 14: when a pass over the clients ends, push hot and normal items apart."""

    hot: int = 100  # the most popular items
    hot_share: float = 0.0  # of all items instead; 0.027 are the 100 of MovieLens-1M
    sample: int = 1000  # |V_sp|, drawn anew for each step; 0: all normal items
    freeze_hot: bool = False  # only normal items move
    steps: int = 5
    lr: float = 0.001
    tau: float = 0.2
    name: str = "popularity"

    def __post_init__(self) -> None:
        positive(self.name, hot=self.hot, tau=self.tau)
        if self.sample < 0 or not 0 <= self.hot_share < 1:
            raise CoveyError(f"{self.name}: sample is at least 0 (0 = all), hot_share from 0 to below 1")

    def polish(self, view: ServerView, model: Fields) -> tuple[Drawer, Fields]:
        if not view.round.closes_epoch or "items" not in model:
            return view.memory, model
        order_I = popularity(view.catalogue).argsort(descending=True, stable=True).to(model["items"].device)
        hot = round(self.hot_share * len(order_I)) or self.hot
        hot_H, normal = order_I[:hot], order_I[hot:]
        memory, items = view.memory, {"items": model["items"]}
        for step in range(self.steps if len(normal) else 0):
            many = self.sample or len(normal)
            chosen_P = view.dice.fold(step).permutation(len(normal))[0, :many].to(normal.device)
            v_ID = items["items"].detach().requires_grad_()
            hot_HD = v_ID[hot_H].detach() if self.freeze_hot else v_ID[hot_H]
            (grad_ID,) = torch.autograd.grad(repulsion(hot_HD, v_ID[normal[chosen_P]], self.tau), v_ID)
            memory, items = Adam(self.lr).step(memory, {"items": v_ID.detach()}, {"items": -grad_ID})
        return memory, {**model, **items}


def user_loss(u_CD: Tensor, one_CD: Tensor, two_CD: Tensor, synthetic_SD: Tensor, tau: float) -> Tensor:  # Eq. 7
    """[C]; `one` and `two` are the noises, and the negatives are compared with the user without noise."""
    same_C = F.cosine_similarity(u_CD + one_CD, u_CD + two_CD) / tau
    # One product for each client: the rounding of a single [C, S] product would depend on C.
    unit_CDS = F.normalize(synthetic_SD, dim=1).mT.expand(len(u_CD), -1, -1)
    other_CS = torch.bmm(F.normalize(u_CD, dim=1)[:, None] / tau, unit_CDS)[:, 0]
    return torch.cat([same_C[:, None], other_CS], 1).logsumexp(1) - same_C


def repulsion(hot_HD: Tensor, normal_PD: Tensor, tau: float) -> Tensor:  # Eq. 14
    cosine_HP = F.normalize(hot_HD, dim=1) @ F.normalize(normal_PD, dim=1).mT
    return ((cosine_HP / tau).logsumexp(1) - 1 / tau).sum()


def popularity(catalogue: Catalogue) -> Tensor:
    if catalogue.popularity_I is None:
        raise CoveyError("CL4FedRec's server must know how popular items are: give the catalogue `popularity_I`")
    return catalogue.popularity_I


def _draw(popularity_I: Tensor, users: int, count: int, dice: Rng) -> Tensor:
    """[S, N] ascending: drawn without replacement, by popularity (the largest of log p + Gumbel noise)."""
    count = min(count, int((popularity_I > 0).sum()))
    noise_SI = -(-torch.log1p(-dice.uniform(users, len(popularity_I))[0])).log()
    keys_SI = popularity_I.double().log().to(noise_SI.device) + noise_SI
    return keys_SI.topk(count).indices.sort().values

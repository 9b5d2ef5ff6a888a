"""CL4FedRec and its popularity regulariser (Yuan et al., 2024, arXiv 2403.20107).

Clients contrast two noisy views of their user vector with synthetic users, and two views of each of
their items with each other; the server keeps hot items apart from normal ones. The server is
assumed to know how popular the items are. Shape suffixes: S = synthetic users, N = items of each, H
= hot items, P = sampled normal items.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.aggregate.step import Adam
from covey.contract.ledger import Disclosure, counts_given
from covey.core import Catalogue, CoveyError, FieldDict, Fields, Ragged, Rng, Sent, Upload, positive
from covey.mechanism import Batch, ClientView, History, Mechanism, ServerView, rows
from covey.solvers import Local

from . import views as contrast
from .views import Reduction, RowPack, Which, noise, normalised, normalised_backward

ADAM_EPS = 1e-8


@dataclass(frozen=True)
class Contrast(Mechanism):
    """Eq. 4-11: user and item contrast, added to the recommendation loss."""

    users: int = 60  # |U_syn|
    history: int = 30  # N
    draw: Literal["popularity", "uniform"] = "popularity"  # of histories; Table 5 has "uniform"
    refit_steps: int = 5  # of Adam on all examples, Eq. 5; 0 keeps the users at their random start
    refit_lr: float = 0.001
    fit_first: bool = True  # Eq. 5 before the first round too; the paper's listing begins after it
    eta: float = 0.1
    tau: float = 0.2
    user_weight: float = 0.5  # lambda_1
    item_weight: float = 0.5  # lambda_2
    item_views: Literal["step", "noise"] = "step"  # Eq. 8; Table 5 has noise of length eta
    view_step: Literal["adam", "sgd"] = "adam"  # of Eq. 8
    view_lr: float = 0.001
    items: Which = "all"  # items of a client's examples, or of its positives only
    reduction: Reduction = "mean"  # over the items of Eq. 10, which prints a sum
    views: Literal["once", "each step"] = "once"  # per participation, or in every local step
    name: str = "contrast"
    needs_private: tuple[str, ...] = ("user",)

    def __post_init__(self) -> None:
        positive(self.name, users=self.users, history=self.history, tau=self.tau)

    # server: synthetic users
    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:  # Eq. 4
        if not view.objective.pointwise:
            raise CoveyError(f"{self.name} learns from single items: use covey.objectives:Bce")
        rng, count_I = view.server_rng, popularity(view.catalogue)
        weight_I = count_I if self.draw == "popularity" else torch.ones_like(count_I)
        items_SN = _draw(weight_I, self.users, self.history, rng.fold("histories"))
        start = view.model.private(rng.fold("birth").streams(self.users), rng.fold("start"))
        s_SD = start["user"].to(view.public["items"])
        s_SD = self._refit(view, s_SD, items_SN) if self.fit_first else s_SD
        return {"items": items_SN, "user": s_SD}

    def end_round(self, view: ServerView) -> FieldDict:
        if not view.round.closes_epoch:
            return view.state
        return {**view.state, "user": self._refit(view, view.state["user"], view.state["items"])}

    def _refit(self, view: ServerView, s_SD: Tensor, items_SN: Tensor) -> Tensor:  # Eq. 5
        """Trains the synthetic users as a cohort of clients with frozen public parameters."""
        offsets = torch.arange(len(s_SD) + 1, device=items_SN.device) * items_SN.shape[1]
        lists = Ragged(items_SN.flatten(), offsets)
        rng = view.server_rng.fold("negatives").streams(len(s_SD))
        made = view.objective.examples(lists, lists, view.catalogue.n_items, rng)
        fields = (made.items.values, made.label, made.weight)
        padded = (made.items.like(x).padded().to(s_SD.device) for x in fields)
        items_SL, label_SL, weight_SL = padded
        batch = Batch(items_SL, weight_SL > 0, None, label_SL, weight_SL)
        frozen = {k: v[None] for k, v in view.public.items()}
        frozen["items"] = rows(frozen["items"], items_SL)
        ready = view.objective.prepare(batch)

        def loss(users: Fields, step: int) -> Tensor:
            return view.objective.loss(view.model, frozen | users, batch, ready, rng, None)

        users, adam = {"user": s_SD.clone()}, Local("adam", lr=self.refit_lr)
        adam.run(users, loss, self.refit_steps, view.catalogue.n_items, {})
        return users["user"]

    def send(self, view: ServerView) -> Sent:
        if view.step != "train":
            return Sent()
        items_SN, params = view.state["items"], {k: v[None] for k, v in view.public.items()}
        lists = History(items_SN, torch.ones_like(items_SN, dtype=torch.bool))
        params |= {"user": view.state["user"]}
        return Sent(shared={"users": view.model.user(params, lists, view.server_rng, False)})

    def disclosures(self) -> tuple[Disclosure, ...]:
        return (counts_given(self.name),) if self.draw == "popularity" else ()

    # client: two views of the user, two of each item
    def prepare(self, view: ClientView) -> Fields:
        made = contrast.compared(view, self.items)
        return made | self._views(view, made) if self.views == "once" else made

    def _views(self, view: ClientView, ready: Fields) -> Fields:  # Eq. 6
        u_CD = view.user().detach()
        made = {name: noise(u_CD, self.eta, view.rng.fold(name)) for name in ("one", "two")}
        users = {name: u_CD + e_CD for name, e_CD in made.items() if self.item_weight}
        if self.items == "all":
            return made | {f"items {name}": self._items(view, name, u) for name, u in users.items()}
        for pack in contrast.packs(ready) if users else ():
            made |= self._packed_items(view, pack, users)
        return made

    def _items(self, view: ClientView, name: str, u_CD: Tensor) -> Tensor:
        if self.item_views == "noise":
            return noise(view.params["items"].detach(), self.eta, view.rng.fold(f"items {name}"))
        return self._step(view, u_CD)

    def _packed_items(self, view: ClientView, pack: RowPack, users: Fields) -> Fields:
        """What `_items` returns, for the rows of a pack and both views."""
        owner, keys = pack.owner(), [f"{pack.key}/{name}" for name in users]
        if self.item_views == "noise":
            rngs = [view.rng.fold(f"items {name}").take(owner) for name in users]
            v_CPD = pack.of(view.params["items"].detach())
            return {k: noise(v_CPD, self.eta, rng) for k, rng in zip(keys, rngs)}
        u_XD = torch.cat([u_CD[owner] for u_CD in users.values()])
        step_XPD = self._step(contrast.packed_view(view, pack.repeated(len(users))), u_XD)
        return dict(zip(keys, step_XPD[:, : pack.at_CP.shape[1]].chunk(len(users))))

    def _step(self, view: ClientView, u_CD: Tensor) -> Tensor:  # Eq. 8
        """A first step on the items; that of Adam is about lr * sign."""
        v_CRD = view.params["items"].detach().requires_grad_()
        frozen = {k: v.detach() for k, v in view.params.items()} | {"items": v_CRD}
        (grad_CRD,) = torch.autograd.grad(view.objective_loss(frozen, u_CD).sum(), v_CRD)
        size = grad_CRD.abs() + ADAM_EPS if self.view_step == "adam" else 1.0
        return -self.view_lr * grad_CRD / size

    def loss(self, view: ClientView) -> Tensor | None:  # Eq. 11
        if not self.user_weight and not self.item_weight:
            return None
        ready, parts = view.prepared, []
        ready = ready if self.views == "once" else ready | self._views(view, ready)
        if self.user_weight:
            users_SD, one_CD, two_CD = view.received.shared["users"], ready["one"], ready["two"]
            loss_C = user_loss(view.user(), one_CD, two_CD, users_SD, self.tau)
            parts.append(self.user_weight * loss_C)
        if self.item_weight:
            options = (("items one", "items two"), self.tau, self.reduction)  # Eq. 9 and 10
            loss_C = contrast.row_loss(view.params["items"], ready, *options)
            parts.append(self.item_weight * loss_C)
        return torch.stack(parts).sum(0)

    def extra_floats(self, n_rows: int) -> int:
        # At most half of the rows are positives; with 4 negatives each, about a quarter of them.
        share = 2 if self.items == "positives" else 1
        return contrast.held_similarities(n_rows // share) if self.item_weight else 0

    def compared_pairs(self, n_rows: int) -> int:
        share = 4 if self.items == "positives" else 1
        return (n_rows // share) ** 2 if self.item_weight else 0


@dataclass(frozen=True)
class PopularityRegulariser(Mechanism):
    """Eq. 14: when a pass over the clients ends, push hot and normal items apart."""

    hot: int = 100  # the most popular items
    hot_share: float = 0.0  # of all items instead; 0.027 are the 100 of MovieLens-1M
    sample: int = 1000  # |V_sp|, drawn in each step; 0: all normal items
    freeze_hot: bool = False  # only normal items move
    steps: int = 5
    lr: float = 0.001
    tau: float = 0.2
    name: str = "popularity"

    def __post_init__(self) -> None:
        positive(self.name, hot=self.hot, tau=self.tau)
        if self.sample < 0 or not 0 <= self.hot_share < 1:
            wrong = f"{self.name}: sample is at least 0 (0 = all), hot_share from 0 to below 1"
            raise CoveyError(wrong)

    def adjust_model(self, view: ServerView, model: Fields) -> tuple[FieldDict, Fields]:
        if not view.round.closes_epoch or "items" not in model:
            return view.state, model
        state, v_ID = view.state, model["items"].detach()
        order_I = popularity(view.catalogue).argsort(descending=True, stable=True).to(v_ID.device)
        hot = round(self.hot_share * len(order_I)) or self.hot
        hot_H, normal = order_I[:hot], order_I[hot:]
        for step in range(self.steps if len(normal) else 0):
            order = view.server_rng.fold(step).permutation(len(normal))[0]
            chosen_P = normal[order[: self.sample or len(normal)].to(normal.device)]
            v_ID.requires_grad_()
            hot_HD = v_ID[hot_H].detach() if self.freeze_hot else v_ID[hot_H]
            loss = repulsion(hot_HD, v_ID[chosen_P], self.tau)
            (grad_ID,) = torch.autograd.grad(loss, v_ID)
            moved = Adam(self.lr).step(state, {"items": v_ID.detach()}, {"items": -grad_ID})
            state, v_ID = moved[0], moved[1]["items"]
        return state, {**model, "items": v_ID}

    def disclosures(self) -> tuple[Disclosure, ...]:
        return (counts_given(self.name),)


def user_loss(
    u_CD: Tensor, one_CD: Tensor, two_CD: Tensor, synthetic_SD: Tensor, tau: float
) -> Tensor:  # Eq. 7
    """The user contrast, [C]; users without noise are compared with the synthetic ones."""
    # One product for each client: the rounding of a single [C, S] product would depend on C.
    unit_CSD = F.normalize(synthetic_SD, dim=1).expand(len(u_CD), -1, -1)
    loss_C: Tensor = _UserContrast.apply(u_CD, one_CD, two_CD, unit_CSD, tau)
    return loss_C


class _UserContrast(torch.autograd.Function):
    """Eq. 7 with its gradient by hand, in a fifth of the operations that autograd would take."""

    @staticmethod
    def forward(
        ctx: Any, u_CD: Tensor, one_CD: Tensor, two_CD: Tensor, unit_CSD: Tensor, tau: float
    ) -> Tensor:
        size_CX1, unit_CXD = normalised(torch.stack([u_CD, u_CD + one_CD, u_CD + two_CD], 1))
        _, p_CD, q_CD = unit_CXD.unbind(1)
        same_C1 = (p_CD * q_CD).sum(1, keepdim=True)
        other_CS = torch.bmm(unit_CXD[:, :1], unit_CSD.mT)[:, 0]
        z_CY = torch.cat([same_C1, other_CS], 1) / tau
        log_C1 = z_CY.logsumexp(1, keepdim=True)
        share_CY = (z_CY - log_C1).exp_()
        to_u = torch.bmm(share_CY[:, None, 1:], unit_CSD)
        to_both = (share_CY[:, :1, None] - 1) * torch.stack([q_CD, p_CD], 1)
        grad_CXD = normalised_backward(torch.cat([to_u, to_both], 1), unit_CXD, size_CX1)
        ctx.save_for_backward(grad_CXD.sum(1) / tau)
        return (log_C1 - z_CY[:, :1])[:, 0]

    @staticmethod
    def backward(ctx: Any, grad_C: Tensor) -> tuple[Tensor, None, None, None, None]:
        (to_u,) = ctx.saved_tensors
        return grad_C[:, None] * to_u, None, None, None, None


def repulsion(hot_HD: Tensor, normal_PD: Tensor, tau: float) -> Tensor:  # Eq. 14
    cosine_HP = F.normalize(hot_HD, dim=1) @ F.normalize(normal_PD, dim=1).mT
    return ((cosine_HP / tau).logsumexp(1) - 1 / tau).sum()


def popularity(catalogue: Catalogue) -> Tensor:
    if catalogue.popularity_I is None:
        wrong = "CL4FedRec's server must know how popular items are"
        raise CoveyError(f"{wrong}: give the catalogue `popularity_I`")
    return catalogue.popularity_I


def _draw(popularity_I: Tensor, users: int, count: int, rng: Rng) -> Tensor:
    """Draws items by popularity without replacement, [S, N], ascending."""
    count = min(count, int((popularity_I > 0).sum()))
    # The items with the largest log p + Gumbel noise.
    noise_SI = -(-torch.log1p(-rng.uniform(users, len(popularity_I))[0])).log()
    keys_SI = popularity_I.double().log().to(noise_SI.device) + noise_SI
    return keys_SI.topk(count).indices.sort().values

"""CL4FedRec and its popularity regulariser (Yuan et al., 2024, arXiv 2403.20107).

Clients contrast two noisy views of their user vector with synthetic users, and two views of each
of their items with each other; the server keeps hot items apart from normal ones. The server is
assumed to know how popular the items are.

S = synthetic users, N = items of each, H = hot items, P = sampled normal items.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.aggregate.step import Adam
from covey.contract.examples import Batch
from covey.contract.ledger import Disclosure, counts_given
from covey.contract.mechanism import Mechanism
from covey.contract.model import rows
from covey.contract.views import ClientView, ServerView
from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Sent, Upload
from covey.core.ragged import FieldDict, Fields, Ragged
from covey.core.rng import Rng
from covey.solvers import Local

from .views import (
    Few,
    Reduction,
    Which,
    across,
    contrasted_rows,
    few_items_loss,
    few_rows,
    fews,
    held,
    item_loss,
    noise,
    unit,
)

ADAM_EPS = 1e-8


@dataclass(frozen=True)
class Contrast(Mechanism):
    """Eq. 4-11: user and item contrast beside the recommendation loss."""

    users: int = 60  # |U_syn|
    history: int = 30  # N
    draw: Literal["popularity", "uniform"] = (
        "popularity"  # how histories are drawn; uniform: Table 5
    )
    refit_steps: int = (
        5  # of Adam in Eq. 5, each on all examples; 0 leaves the users at their random start
    )
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
    views: Literal["once", "each step"] = (
        "once"  # per participation; a step of all examples is a local epoch
    )
    name: str = "contrast"
    needs_private: tuple[str, ...] = ("user",)

    def __post_init__(self) -> None:
        positive(self.name, users=self.users, history=self.history, tau=self.tau)

    # server: synthetic users
    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:  # Eq. 4
        if not view.objective.pointwise:
            raise CoveyError(
                f"{self.name} learns from one item at a time: use covey.objectives:Bce"
            )
        count_I = popularity(view.catalogue)
        weight_I = count_I if self.draw == "popularity" else torch.ones_like(count_I)
        items_SN = _draw(weight_I, self.users, self.history, view.server_rng.fold("histories"))
        born = view.model.private(
            view.server_rng.fold("birth").streams(self.users), view.server_rng.fold("start")
        )
        s_SD = born["user"].to(view.public["items"])
        return {
            "items": items_SN,
            "user": self._refit(view, s_SD, items_SN) if self.fit_first else s_SD,
        }

    def end_round(self, view: ServerView) -> FieldDict:
        if not view.round.closes_epoch:
            return view.state
        return {**view.state, "user": self._refit(view, view.state["user"], view.state["items"])}

    def _refit(self, view: ServerView, s_SD: Tensor, items_SN: Tensor) -> Tensor:  # Eq. 5
        """The synthetic users as a cohort of clients whose public parameters stand still."""
        offsets = torch.arange(len(s_SD) + 1, device=items_SN.device) * items_SN.shape[1]
        lists = Ragged(items_SN.flatten(), offsets)
        rng = view.server_rng.fold("negatives").streams(len(s_SD))
        made = view.objective.examples(lists, lists, view.catalogue.n_items, rng)
        wide = lambda x: made.items.like(x).padded().to(s_SD.device)
        items_SL, weight_SL = wide(made.items.values), wide(made.weight)
        batch = Batch(items_SL, weight_SL > 0, None, wide(made.label), weight_SL)
        frozen = {k: v[None] for k, v in view.public.items()}
        frozen["items"] = rows(frozen["items"], items_SL)
        ready = view.objective.prepare(batch)
        forward = lambda moving, _: view.objective.loss(
            view.model, {**frozen, **moving}, batch, ready, rng, None
        )
        leaves = {"user": s_SD.clone()}
        Local("adam", lr=self.refit_lr).run(
            leaves, forward, self.refit_steps, view.catalogue.n_items, {}
        )
        return leaves["user"]

    def send(self, view: ServerView) -> Sent:
        return Sent(shared={"users": view.state["user"]}) if view.step == "train" else Sent()

    def disclosures(self) -> tuple[Disclosure, ...]:
        return (counts_given(self.name),) if self.draw == "popularity" else ()

    # client: two views of the user, two of each item
    def prepare(self, view: ClientView) -> Fields:
        assert view.batch is not None
        rows_CR = contrasted_rows(view.batch, self.items)
        made = few_rows(rows_CR) if self.items == "positives" else {"rows": rows_CR}
        return made | self._views(view, made) if self.views == "once" else made

    def _views(self, view: ClientView, ready: Fields) -> Fields:
        u_CD = view.user().detach()
        made = {
            name: noise(u_CD, self.eta, view.rng.fold(name)) for name in ("one", "two")
        }  # Eq. 6
        users = {name: u_CD + e_CD for name, e_CD in made.items() if self.item_weight}
        if self.items == "all":
            return made | {
                f"items {name}": self._items(view, name, u_CD) for name, u_CD in users.items()
            }
        for few in fews(ready) if users else ():
            made |= self._few_items(view, few, users)
        return made

    def _items(self, view: ClientView, name: str, u_CD: Tensor) -> Tensor:
        if self.item_views == "noise":
            return noise(view.params["items"].detach(), self.eta, view.rng.fold(f"items {name}"))
        return self._step(view, u_CD)

    def _few_items(self, view: ClientView, few: Few, users: Fields) -> Fields:
        """The same of those rows only that take part."""
        pick, keys = few.rows(), [f"{few.key}/{name}" for name in users]
        if self.item_views == "noise":
            rngs = [view.rng.fold(f"items {name}").take(pick) for name in users]
            return {
                k: noise(few.of(view.params["items"].detach()), self.eta, rng)
                for k, rng in zip(keys, rngs)
            }
        u_XD = torch.cat([u_CD[pick] for u_CD in users.values()])
        step_XPD = self._step(part_of(view, few.repeated(len(users))), u_XD)[
            :, : few.at_CP.shape[1]
        ]
        return dict(zip(keys, step_XPD.chunk(len(users))))

    def _step(
        self, view: ClientView, u_CD: Tensor
    ) -> Tensor:  # Eq. 8: a first step, of Adam about lr * sign
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
            loss_C = user_loss(
                view.user(), ready["one"], ready["two"], view.received.shared["users"], self.tau
            )
            parts.append(self.user_weight * loss_C)
        if self.item_weight:
            parts.append(self.item_weight * self._item_loss(view.params["items"], ready))
        return torch.stack(parts).sum(0)

    def _item_loss(self, v_CRD: Tensor, ready: Fields) -> Tensor:  # Eq. 9 and 10
        if self.items == "positives":
            return few_items_loss(v_CRD, ready, self.tau, self.reduction)
        one_CRD, two_CRD = v_CRD + ready["items one"], v_CRD + ready["items two"]
        return item_loss(one_CRD, two_CRD, ready["rows"], self.tau, self.reduction)

    def extra_floats(self, n_rows: int) -> int:
        few = (
            2 if self.items == "positives" else 1
        )  # at most so; beside 4 negatives each it is a quarter
        return held(n_rows // few) if self.item_weight else 0

    def compared_pairs(self, n_rows: int) -> int:
        few = 4 if self.items == "positives" else 1
        return (n_rows // few) ** 2 if self.item_weight else 0


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
            raise CoveyError(
                f"{self.name}: sample is at least 0 (0 = all), hot_share from 0 to below 1"
            )

    def adjust_model(self, view: ServerView, model: Fields) -> tuple[FieldDict, Fields]:
        if not view.round.closes_epoch or "items" not in model:
            return view.state, model
        order_I = (
            popularity(view.catalogue)
            .argsort(descending=True, stable=True)
            .to(model["items"].device)
        )
        hot = round(self.hot_share * len(order_I)) or self.hot
        hot_H, normal = order_I[:hot], order_I[hot:]
        memory, items = view.state, {"items": model["items"]}
        for step in range(self.steps if len(normal) else 0):
            many = self.sample or len(normal)
            chosen_P = (
                view.server_rng.fold(step).permutation(len(normal))[0, :many].to(normal.device)
            )
            v_ID = items["items"].detach().requires_grad_()
            hot_HD = v_ID[hot_H].detach() if self.freeze_hot else v_ID[hot_H]
            (grad_ID,) = torch.autograd.grad(
                repulsion(hot_HD, v_ID[normal[chosen_P]], self.tau), v_ID
            )
            memory, items = Adam(self.lr).step(
                memory, {"items": v_ID.detach()}, {"items": -grad_ID}
            )
        return memory, {**model, **items}

    def disclosures(self) -> tuple[Disclosure, ...]:
        return (counts_given(self.name),)


def part_of(view: ClientView, few: Few) -> ClientView:
    """Some clients with those rows only that take part: for gradients of these rows.

    Behind them stands one more that weighs as much as all that is set aside, so that means keep their divisor.
    """
    assert view.batch is not None
    pick, batch = few.rows(), view.batch
    weight_CR, label_CR, offset_CR = by_row(batch)
    wide = lambda x_CR: few.of(x_CR[..., None])[..., 0].where(few.some_CP, 0)
    weight_CP = wide(weight_CR)
    rest_C1 = (weight_CR[pick].sum(1) - weight_CP.sum(1))[:, None]
    some = Batch(
        F.pad(wide(batch.items_CR), (0, 1)),
        F.pad(few.some_CP, (0, 1)),
        None,
        F.pad(wide(label_CR), (0, 1)),
        torch.cat([weight_CP, rest_C1], 1),
        offset_CL=None if offset_CR is None else F.pad(wide(offset_CR), (0, 1)),
    )
    params = {k: v if len(v) == 1 else v[pick] for k, v in view.params.items() if k != "items"}
    params["items"] = F.pad(few.of(view.params["items"]), (0, 0, 0, 1))
    ready = view.objective.prepare(some)
    return replace(view, params=params, rng=view.rng.take(pick), batch=some, objective_state=ready)


def by_row(batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
    """The summed weight of each row's examples, their mean label and their mean offset, [C, R]."""
    if batch.index_CL is None:
        return batch.weight_CL, batch.label_CL, batch.offset_CL
    added = lambda x_CL: x_CL.new_zeros(batch.real_CR.shape).scatter_add(1, batch.index_CL, x_CL)
    weight_CR = added(batch.weight_CL)
    mean = lambda x_CL: added(batch.weight_CL * x_CL) / weight_CR.clamp(min=1e-30)
    return (
        weight_CR,
        mean(batch.label_CL),
        None if batch.offset_CL is None else mean(batch.offset_CL),
    )


def user_loss(
    u_CD: Tensor, one_CD: Tensor, two_CD: Tensor, synthetic_SD: Tensor, tau: float
) -> Tensor:  # Eq. 7
    """[C]; `one` and `two` are the noises, and the negatives are compared with the user without noise."""
    # One product for each client: the rounding of a single [C, S] product would depend on C.
    unit_CSD = F.normalize(synthetic_SD, dim=1).expand(len(u_CD), -1, -1)
    loss_C: Tensor = _UserContrast.apply(u_CD, one_CD, two_CD, unit_CSD, tau)
    return loss_C


class _UserContrast(torch.autograd.Function):
    """Eq. 7 with its gradient by hand: autograd would take five times the operations, each on few numbers."""

    @staticmethod
    def forward(
        ctx: Any, u_CD: Tensor, one_CD: Tensor, two_CD: Tensor, unit_CSD: Tensor, tau: float
    ) -> Tensor:
        size_CX1, unit_CXD = unit(torch.stack([u_CD, u_CD + one_CD, u_CD + two_CD], 1))
        _, p_CD, q_CD = unit_CXD.unbind(1)
        same_C1 = (p_CD * q_CD).sum(1, keepdim=True)
        other_CS = torch.bmm(unit_CXD[:, :1], unit_CSD.mT)[:, 0]
        z_CY = torch.cat([same_C1, other_CS], 1) / tau
        log_C1 = z_CY.logsumexp(1, keepdim=True)
        share_CY = (z_CY - log_C1).exp_()
        to_u = torch.bmm(share_CY[:, None, 1:], unit_CSD)
        to_both = (share_CY[:, :1, None] - 1) * torch.stack([q_CD, p_CD], 1)
        grad_CXD = across(torch.cat([to_u, to_both], 1), unit_CXD, size_CX1)
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
        raise CoveyError(
            "CL4FedRec's server must know how popular items are: give the catalogue `popularity_I`"
        )
    return catalogue.popularity_I


def _draw(popularity_I: Tensor, users: int, count: int, dice: Rng) -> Tensor:
    """[S, N] ascending: drawn without replacement, by popularity (the largest of log p + Gumbel noise)."""
    count = min(count, int((popularity_I > 0).sum()))
    noise_SI = -(-torch.log1p(-dice.uniform(users, len(popularity_I))[0])).log()
    keys_SI = popularity_I.double().log().to(noise_SI.device) + noise_SI
    return keys_SI.topk(count).indices.sort().values

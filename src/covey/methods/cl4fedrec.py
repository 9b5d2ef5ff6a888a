"""CL4FedRec and its popularity regulariser (Yuan et al., 2024, arXiv 2403.20107).

Clients contrast two noisy views of their user vector with synthetic users, and two views of each
of their items with each other; the server keeps hot items apart from normal ones. The server is
assumed to know how popular the items are.

S = synthetic users, N = items of each, K = rows of a tile, H = hot items, P = sampled normal items.
"""

from dataclasses import dataclass
from typing import Any

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

ADAM_EPS = 1e-8
EXCLUDED = -1e9  # finite, so that a client without any row has a loss of 0 and no NaN
TILE = 65_536  # similarities of a client that are held at once


@dataclass(frozen=True)
class Contrast(Mechanism):
    """Eq. 4-11: user and item contrast beside the recommendation loss."""

    users: int = 60  # |U_syn|
    history: int = 30  # N
    refit_steps: int = 5  # of Adam in Eq. 5, each on all examples
    refit_lr: float = 0.001
    eta: float = 0.1
    tau: float = 0.2
    user_weight: float = 0.5  # lambda_1
    item_weight: float = 0.5  # lambda_2
    view_lr: float = 0.001  # the step of Eq. 8
    name: str = "contrast"
    needs: tuple[str, ...] = ("user",)

    def __post_init__(self) -> None:
        positive(self.name, users=self.users, history=self.history, tau=self.tau)

    # server: synthetic users
    def init(self, view: ServerView, enrolment: Upload | None) -> Drawer:  # Eq. 4
        if not view.objective.pointwise:
            raise CoveyError(f"{self.name} learns from one item at a time: use covey.objectives:Bce")
        items_SN = _draw(popularity(view.catalogue), self.users, self.history, view.dice.fold("histories"))
        born = view.model.private(view.dice.fold("birth").streams(self.users), view.dice.fold("start"))
        s_SD = born["user"].to(view.public["items"])
        return {"items": items_SN, "user": self._refit(view, s_SD, items_SN)}

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

    # client: two views of the user, two of each item, made once per participation
    def prepare(self, view: ClientView) -> Fields:
        assert view.batch is not None
        u_CD = view.user().detach()
        one_CD, two_CD = self._noise(u_CD, view.rng.fold("one")), self._noise(u_CD, view.rng.fold("two"))
        made = {"one": one_CD, "two": two_CD, "rows": _trained_rows(view.batch)}
        if self.item_weight:
            made |= {"items one": self._step(view, u_CD + one_CD), "items two": self._step(view, u_CD + two_CD)}
        return made

    def _noise(self, u_CD: Tensor, rng: Rng) -> Tensor:  # Eq. 6
        z_CD = rng.uniform(u_CD.shape[1]).to(u_CD)
        return self.eta * F.normalize(z_CD, dim=1) * u_CD.sign()

    def _step(self, view: ClientView, u_CD: Tensor) -> Tensor:  # Eq. 8: a first step of Adam, about lr * sign
        v_CRD = view.params["items"].detach().requires_grad_()
        frozen = {k: v.detach() for k, v in view.params.items()} | {"items": v_CRD}
        (grad_CRD,) = torch.autograd.grad(view.recommend(frozen, u_CD).sum(), v_CRD)
        return -self.view_lr * grad_CRD / (grad_CRD.abs() + ADAM_EPS)

    def loss(self, view: ClientView) -> Tensor | None:  # Eq. 11
        ready, parts = view.prepared, []
        if self.user_weight:
            loss_C = user_loss(view.user(), ready["one"], ready["two"], view.sent.shared["users"], self.tau)
            parts.append(self.user_weight * loss_C)
        if self.item_weight:
            v_CRD = view.params["items"]
            one_CRD, two_CRD = v_CRD + ready["items one"], v_CRD + ready["items two"]  # Eq. 9
            parts.append(self.item_weight * item_loss(one_CRD, two_CRD, ready["rows"], self.tau))
        return torch.stack(parts).sum(0) if parts else None

    def floats(self, n_rows: int) -> int:
        return _tile_rows(n_rows) * n_rows if self.item_weight else 0


@dataclass(frozen=True)
class PopularityRegulariser(Mechanism):
    """Eq. 14: when a pass over the clients ends, push hot and normal items apart."""

    hot: int = 100  # the most popular items
    sample: int = 1000  # |V_sp|, drawn anew for each step
    steps: int = 5
    lr: float = 0.001
    tau: float = 0.2
    name: str = "popularity"

    def __post_init__(self) -> None:
        positive(self.name, hot=self.hot, sample=self.sample, tau=self.tau)

    def polish(self, view: ServerView, model: Fields) -> tuple[Drawer, Fields]:
        if not view.round.closes_epoch or "items" not in model:
            return view.memory, model
        order_I = popularity(view.catalogue).argsort(descending=True, stable=True).to(model["items"].device)
        hot_H, normal = order_I[: self.hot], order_I[self.hot :]
        memory, items = view.memory, {"items": model["items"]}
        for step in range(self.steps if len(normal) else 0):
            chosen_P = view.dice.fold(step).permutation(len(normal))[0, : self.sample].to(normal.device)
            v_ID = items["items"].detach().requires_grad_()
            loss = repulsion(v_ID[hot_H], v_ID[normal[chosen_P]], self.tau)
            (grad_ID,) = torch.autograd.grad(loss, v_ID)
            memory, items = Adam(self.lr).step(memory, {"items": v_ID.detach()}, {"items": -grad_ID})
        return memory, {**model, **items}


def user_loss(u_CD: Tensor, one_CD: Tensor, two_CD: Tensor, synthetic_SD: Tensor, tau: float) -> Tensor:  # Eq. 7
    """[C]; `one` and `two` are the noises, and the negatives are compared with the user without noise."""
    same_C = F.cosine_similarity(u_CD + one_CD, u_CD + two_CD) / tau
    # One product for each client: the rounding of a single [C, S] product would depend on C.
    unit_CDS = F.normalize(synthetic_SD, dim=1).mT.expand(len(u_CD), -1, -1)
    other_CS = torch.bmm(F.normalize(u_CD, dim=1)[:, None] / tau, unit_CDS)[:, 0]
    return torch.cat([same_C[:, None], other_CS], 1).logsumexp(1) - same_C


def item_loss(one_CRD: Tensor, two_CRD: Tensor, rows_CR: Tensor, tau: float) -> Tensor:  # Eq. 10
    """[C], the mean over the rows that are trained on."""
    weight_CR = rows_CR.to(one_CRD) / rows_CR.sum(1, keepdim=True).clamp(min=1)
    bar_CR = torch.full_like(weight_CR, -1 / tau).masked_fill(~rows_CR, EXCLUDED)  # a cosine is at most 1
    one_CRD, two_CRD = F.normalize(one_CRD, dim=2) / tau, F.normalize(two_CRD, dim=2)
    total_C: Tensor = _LogSums.apply(one_CRD, two_CRD, weight_CR, bar_CR)
    return total_C + weight_CR.sum(1) / tau - ((one_CRD * two_CRD).sum(2) * weight_CR).sum(1)


class _LogSums(torch.autograd.Function):
    """Weighted sum over k of log sum_j exp(a_k . b_j + bar_j), with its gradient, a tile of rows at a time.

    The [R, R] matrix never exists: a client with 3,000 items would need four of 36 MB.
    """

    @staticmethod
    def forward(ctx: Any, a_CRD: Tensor, b_CRD: Tensor, weight_CR: Tensor, bar_CR: Tensor) -> Tensor:
        total_C, to_a, to_b = a_CRD.new_zeros(len(a_CRD)), torch.empty_like(a_CRD), torch.zeros_like(b_CRD)
        many = _tile_rows(a_CRD.shape[1])
        for at in range(0, a_CRD.shape[1], many):
            a_CKD, weight_CK1 = a_CRD[:, at : at + many], weight_CR[:, at : at + many, None]
            exp_CKR = torch.baddbmm(bar_CR[:, None], a_CKD, b_CRD.mT).exp_()
            sum_CK1 = exp_CKR.sum(2, keepdim=True).clamp(min=torch.finfo(a_CRD.dtype).tiny)
            total_C += (sum_CK1.log() * weight_CK1).sum((1, 2))
            share_CK1 = weight_CK1 / sum_CK1
            to_a[:, at : at + many] = share_CK1 * (exp_CKR @ b_CRD)
            to_b.baddbmm_(exp_CKR.mT, share_CK1 * a_CKD)
        ctx.save_for_backward(to_a, to_b)
        return total_C

    @staticmethod
    def backward(ctx: Any, grad_C: Tensor) -> tuple[Tensor, Tensor, None, None]:
        to_a, to_b = ctx.saved_tensors
        return grad_C[:, None, None] * to_a, grad_C[:, None, None] * to_b, None, None


def _tile_rows(n_rows: int) -> int:
    """Depends on the client alone, so that sums keep their order whoever shares the block."""
    return max(8, TILE // n_rows)


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


def _trained_rows(batch: Batch) -> Tensor:
    """[C, R]: rows with an example that counts."""
    weight_CR = batch.weight_CL
    if batch.index_CL is not None:
        weight_CR = weight_CR.new_zeros(batch.real_CR.shape).scatter_add(1, batch.index_CL, weight_CR)
    return batch.real_CR & (weight_CR > 0)

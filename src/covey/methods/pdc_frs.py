"""PDC-FRS: privacy-preserving data contribution (Yang et al., 2024, arXiv 2409.07773).

Clients contribute a perturbed list once. The server trains an auxiliary model on the lists, which
scores items for each client (augmentation) and gives views to contrast users and items with.

What epsilon means: it protects one position of the list. A list of n items is n * epsilon private
as a whole, its length is in clear, and the guarantee is void against a server that also sees raw
model updates. Eq. 9 sends a vector of every user to every client.

Shape suffixes: M = users that contributed, T = contributed pairs, B = rows or pairs at once,
L = a positive and its negatives, K = draws for one item.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core import CoveyError, Drawer, Fields, Ragged, Sent, Upload, offsets_of, positive
from ..examples import Examples
from ..ledger import Disclosure
from ..mechanism import ClientView, Mechanism, ServerView
from ..sampling import negatives
from ..solvers import Local
from .titles import ROWS, Likeness, likeness

SCORES = 1 << 18  # scores of the auxiliary model that are computed at once


@dataclass(frozen=True)
class DataContribution(Mechanism):
    epsilon: float = 5.0  # of one item
    count: int = 30  # alpha: items sent to a client
    user_weight: float = 0.5  # lambda
    item_weight: float = 0.5  # beta
    tau: float = 0.2
    item_lr: float = 1.0  # of the SGD step of Eq. 8
    aux_epochs: int = 5  # over the pooled pairs, each time a pass opens
    aux_lr: float = 0.001
    aux_batch: int = 4096  # examples
    aux_negatives: int = 4  # for each contributed item
    name: str = "contribution"
    needs: tuple[str, ...] = ("user",)
    asks: frozenset[str] = frozenset({"enrol"})

    def __post_init__(self) -> None:
        positive(self.name, epsilon=self.epsilon, tau=self.tau, aux_epochs=self.aux_epochs)
        positive(self.name, aux_batch=self.aux_batch, aux_negatives=self.aux_negatives)
        if self.count < 0:
            raise CoveyError(f"{self.name}: count = {self.count}; at least 0 is needed")

    # client, line 2
    def enrol(self, view: ClientView) -> Drawer:
        """Asked again, a client answers the same: perturbing anew would spend the budget again."""
        items, like = view.data.items, likeness(view.catalogue.titles, view.catalogue.n_items)
        unit = view.rng.home("contribution").ragged_uniform(items.lengths)
        return {"list": items.like(perturbed(items.values, unit.values, like, self.epsilon))}

    # server, line 3: who contributed what, and the auxiliary model
    def init(self, view: ServerView, enrolment: Upload | None) -> Drawer:
        like = likeness(view.catalogue.titles, view.catalogue.n_items)
        public = view.model.public(view.catalogue.n_items, view.dice.fold("auxiliary"))
        v_ID, none = view.public["items"], torch.zeros(0, dtype=torch.long)
        nobody = view.model.private(view.dice.streams(0), view.dice)["user"]
        memory = {"ids": none, "list": none, "offsets": none.new_zeros(1), "aux/user": nobody.to(v_ID)}
        memory |= {f"aux/{k}": v[None].to(v_ID) for k, v in public.items()}
        return self._grown(view, {**memory, "sensitivity": torch.tensor(like.sensitivity)}, enrolment)

    def admit(self, view: ServerView, enrolment: Upload | None) -> Drawer:
        return self._grown(view, view.memory, enrolment)

    def _grown(self, view: ServerView, memory: Drawer, enrolment: Upload | None) -> Drawer:
        """Memory with those who are new in it; what a client said first stays."""
        if enrolment is None or self.name not in enrolment.extra:
            return memory
        new = (~torch.isin(enrolment.ids_C, memory["ids"].to(enrolment.ids_C))).nonzero()[:, 0]
        said = _as_sets(enrolment.extra[self.name]["list"].take(new), view.catalogue.n_items).to(memory["ids"].device)
        lists = Ragged.cat([Ragged(memory["list"], memory["offsets"]), said])
        born = view.model.private(view.dice.fold("birth").streams(len(new)), view.dice)["user"]
        return {
            **memory,
            "ids": torch.cat([memory["ids"], enrolment.ids_C[new].to(memory["ids"])]),
            "list": lists.values,
            "offsets": lists.offsets,
            "aux/user": torch.cat([memory["aux/user"], born.to(memory["aux/user"])]),
        }

    # line 6
    def begin(self, view: ServerView) -> Drawer:
        if not view.round.opens_epoch or not len(view.memory["list"]):
            return view.memory
        leaves = {k: v.clone() for k, v in _auxiliary(view.memory).items()}
        lists = Ragged(view.memory["list"], view.memory["offsets"])
        self._train(view, leaves, lists)
        return {**view.memory, **{f"aux/{k}": v for k, v in leaves.items()}}

    def _train(self, view: ServerView, leaves: Fields, lists: Ragged) -> None:
        """Moves the auxiliary model: each contributed item with its negatives, all users pooled."""
        streams = view.dice.fold("negatives").streams(len(lists))
        drawn, exists = negatives(lists, view.catalogue.n_items, lists.lengths, self.aux_negatives, streams)
        items_TL = torch.cat([lists.values[:, None], drawn], 1)
        weight_TL = torch.cat([torch.ones_like(exists[:, :1]), exists], 1)
        owner_T, v_ID = lists.owner, leaves["items"][0]
        many = max(1, self.aux_batch // items_TL.shape[1])
        steps = -(-len(items_TL) // many)
        orders = [view.dice.fold(f"order {e}").permutation(len(items_TL))[0] for e in range(self.aux_epochs)]

        def forward(params: Fields, step: int) -> Tensor:
            pick_B = orders[step // steps][step % steps * many :][:many]
            u_BD = F.embedding(owner_T[pick_B].to(v_ID.device), params["user"])
            v_BLD = F.embedding(items_TL[pick_B].to(v_ID.device), params["items"][0])
            z_BL = view.model.score(params, u_BD, v_BLD)
            y_BL, w_BL = torch.zeros_like(z_BL), weight_TL[pick_B].to(z_BL)
            y_BL[:, 0] = 1
            return F.binary_cross_entropy_with_logits(z_BL, y_BL, w_BL, reduction="sum") / w_BL.sum()

        solver = Local("adam", lr=self.aux_lr, epochs=self.aux_epochs)
        solver.run(leaves, forward, steps * self.aux_epochs, view.catalogue.n_items, {})

    # lines 8 and 10
    def send(self, view: ServerView) -> Sent:
        if view.step != "train" or not len(view.memory["ids"]):
            return Sent()
        me_C = _find(view.memory["ids"], view.round.ids_C)
        shared: Drawer = {}
        each: Drawer = {}
        if self.count:
            each |= self._best(view, me_C)
        if self.user_weight:  # Eq. 9 looks at directions only, so nothing else is sent
            shared["users"] = F.normalize(view.memory["aux/user"], dim=1)
            each["me"] = me_C
        return Sent(shared, each)

    def _best(self, view: ServerView, me_C: Tensor) -> Drawer:  # Eq. 6
        """The items that the auxiliary model scores highest, of those that the client did not contribute."""
        params, lists = _auxiliary(view.memory), Ragged(view.memory["list"], view.memory["offsets"])
        parts = []
        for row_B in me_C.split(max(1, SCORES // view.catalogue.n_items)):
            known_B = row_B.clamp(min=0)
            z_BI = view.model.score(params, params["user"][known_B], params["items"])
            said = lists.take(known_B)
            z_BI[said.owner, said.values] = float("-inf")
            z_BI[row_B < 0] = float("-inf")
            parts.append(z_BI.topk(min(self.count, z_BI.shape[1])))
        z_CK, items_CK = torch.cat([p.values for p in parts]), torch.cat([p.indices for p in parts])
        real_CK = z_CK > float("-inf")
        items = Ragged(items_CK[real_CK], offsets_of(real_CK.sum(1)))
        return {"items": items, "scores": items.like(z_CK[real_CK].sigmoid())}

    # client
    def augment(self, view: ClientView, examples: Examples) -> Examples:  # Eq. 7
        """Soft labels. What the client knows is liked stays its own, and no negative contradicts what was sent."""
        if "items" not in view.sent.each:
            return examples
        items, scores = view.sent.each["items"], view.sent.each["scores"]
        sent_T, own_T, made_T = (_keys(x, view.catalogue.n_items) for x in (items, view.data.items, examples.items))
        more = Examples(items, scores.values, torch.ones_like(scores.values)).keep(~torch.isin(sent_T, own_T))
        examples = examples.keep((examples.label > 0) | ~torch.isin(made_T, sent_T))
        return examples.append(more.items, more.label)

    def loss(self, view: ClientView) -> Tensor | None:  # Eq. 10
        if not self.user_weight or "me" not in view.sent.each:
            return None
        users_MD, me_C = view.sent.shared["users"], view.sent.each["me"]
        return self.user_weight * user_loss(view.user(), users_MD, me_C, self.tau)

    # server, line 14
    def polish(self, view: ServerView, model: Fields) -> tuple[Drawer, Fields]:  # Eq. 8
        if not view.round.closes_epoch or not self.item_weight or "items" not in model:
            return view.memory, model
        grad_ID = item_gradient(model["items"], view.memory["aux/items"][0], self.tau)
        return view.memory, {**model, "items": model["items"] - self.item_lr * self.item_weight * grad_ID}

    def discloses(self) -> tuple[Disclosure, ...]:
        what = "the client's items, each replaced at random by a similar one"
        return (
            Disclosure("enrol", f"{self.name}/list", what, self.epsilon, unit="item"),
            Disclosure("enrol", f"{self.name}/list/length", "how many items the client has"),
        )


def perturbed(items_T: Tensor, unit_T: Tensor, like: Likeness, epsilon: float) -> Tensor:  # Eq. 5
    """Each item replaced by a draw of the exponential mechanism, `unit` being uniform numbers in [0, 1)."""
    distinct, place_T = items_T.unique(return_inverse=True)
    order_T = place_T.argsort(stable=True)
    offsets = offsets_of(torch.bincount(place_T, minlength=len(distinct)))
    out_T = torch.empty_like(items_T)
    for at in range(0, len(distinct), ROWS):
        items_B = distinct[at : at + ROWS]
        cdf_BI = (epsilon / (2 * like.sensitivity) * like.rows(items_B)).softmax(1).cumsum(1)
        here = order_T[offsets[at] : offsets[at + len(items_B)]]
        unit = Ragged(unit_T[here], offsets[at : at + len(items_B) + 1] - offsets[at])
        unit_BK = unit.padded()
        drawn_BK = torch.searchsorted(cdf_BI, unit_BK, right=True).clamp(max=like.n_items - 1)
        out_T[here] = drawn_BK[unit.mask(unit_BK.shape[1])]
    return out_T


def user_loss(u_CD: Tensor, users_MD: Tensor, me_C: Tensor, tau: float) -> Tensor:  # Eq. 9
    """[C], against the unit vectors of all users; 0 for a client that has none (-1)."""
    # One product for each client: the rounding of a single [C, M] product would depend on C.
    cosine_CM = torch.bmm(F.normalize(u_CD, dim=1)[:, None], users_MD.to(u_CD).mT.expand(len(u_CD), -1, -1))[:, 0]
    return F.cross_entropy(cosine_CM / tau, me_C, reduction="none", ignore_index=-1)


def item_gradient(v_ID: Tensor, aux_ID: Tensor, tau: float) -> Tensor:  # Eq. 8
    """Of the mean over items; each item's term moves its own row only, so rows go in blocks."""
    aux_ID = F.normalize(aux_ID.to(v_ID), dim=1)
    parts = []
    for index_B in torch.arange(len(v_ID), device=v_ID.device).split(ROWS):
        v_BD = v_ID[index_B].detach().requires_grad_()
        loss = F.cross_entropy(F.normalize(v_BD, dim=1) @ aux_ID.mT / tau, index_B, reduction="sum")
        parts.append(torch.autograd.grad(loss / len(v_ID), v_BD)[0])
    return torch.cat(parts)


def _auxiliary(memory: Drawer) -> Fields:
    return {k.removeprefix("aux/"): v for k, v in memory.items() if k.startswith("aux/")}


def _keys(items: Ragged, n_items: int) -> Tensor:
    return items.owner * n_items + items.values


def _as_sets(lists: Ragged, n_items: int) -> Ragged:
    """Sorted, distinct, and only items that exist: nothing a client sends is trusted."""
    valid = (lists.values >= 0) & (lists.values < n_items)
    key = (lists.owner[valid] * n_items + lists.values[valid]).unique()
    return Ragged(key % n_items, offsets_of(torch.bincount(key // n_items, minlength=len(lists))))


def _find(ids_M: Tensor, ids_C: Tensor) -> Tensor:
    """Where each id stands, -1 where it does not."""
    order_M, ids_C = ids_M.argsort(), ids_C.to(ids_M.device)
    at_C = torch.searchsorted(ids_M[order_M], ids_C).clamp(max=len(ids_M) - 1)
    row_C = order_M[at_C]
    return torch.where(ids_M[row_C] == ids_C, row_C, -1)

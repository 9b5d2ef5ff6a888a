"""PDC-FRS: privacy-preserving data contribution (Yang et al., 2024, arXiv 2409.07773).

Clients contribute a perturbed list once. The server trains an auxiliary model on the lists, which
scores items for each client (augmentation) and gives views to contrast users and items with.
Epsilon protects one position of a list: a list of n items is n * epsilon private, its length is in
clear unless all contribute equally many items, and the guarantee is void against a server that also
sees raw model updates. Eq. 9 as published sends a vector of every user to every client.
Shape suffixes: M = users that contributed, K = users that a client is contrasted with.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.ledger import INFINITE, Disclosure
from covey.core import CoveyError, FieldDict, Fields, Ragged, Sent, Upload, among_choices, positive
from covey.mechanism import ClientView, Examples, Mechanism, ServerView
from covey.privacy.library import check_installed

from . import pdc_frs_auxiliary as auxiliary
from .pdc_frs_auxiliary import PREFIX, parameters
from .pdc_frs_draws import Contribute, Noise, as_sets, contribution, kept_share
from .titles import ROWS, Bound, Likeness, Similarity, likeness, table_likeness


@dataclass(frozen=True)
class DataContribution(Mechanism):
    """Contributed lists, the auxiliary model that learns from them, and what it is used for."""

    epsilon: float = 5.0  # of one item
    contribute: Contribute = "perturbed"  # controls: "uniform" (epsilon 0), "clean" (infinite)
    similarity: Similarity = "words"  # of titles; "items": of the item table; "itself": none
    bound: Bound = "exact"  # Delta over the catalogue; 2, the range of cosines; 1, clipped at 0
    noise: Noise = "simulated"  # drawn from the run's seed, or by OpenDP from the device's entropy
    length: int = 0  # positions that each client contributes; 0: its number of items, in clear
    count: int = 30  # alpha: items sent to a client
    labels: Literal["soft", "hard"] = "soft"  # of these: the auxiliary model's scores, or 1
    user_weight: float = 0.5  # lambda
    against: Literal["all", "some", "synthetic"] = "all"  # users that a client is contrasted with
    others: int = 64  # how many, drawn in each round, if not all
    item_weight: float = 0.5  # beta
    tau: float = 0.2
    item_lr: float = 1.0  # of the SGD step of Eq. 8
    aux_epochs: int = 5  # over the pooled pairs, when a pass begins
    aux_lr: float = 0.001
    aux_batch: int = 8192  # examples
    aux_negatives: int = 4  # for each contributed item
    name: str = "contribution"
    needs_private: tuple[str, ...] = ("user",)
    exchanges: frozenset[str] = frozenset({"enrol"})

    def __post_init__(self) -> None:
        among_choices(self.name, self)
        positive(self.name, tau=self.tau, aux_epochs=self.aux_epochs, others=self.others)
        positive(self.name, aux_batch=self.aux_batch, aux_negatives=self.aux_negatives)
        if self.noise == "opendp":
            check_installed(self.name)
        if min(self.count, self.length) < 0:
            wrong = f"{self.name}: count = {self.count} and length = {self.length}"
            raise CoveyError(f"{wrong}; at least 0 is needed")
        if self.contribute == "perturbed" and not 0 < self.epsilon < math.inf:
            wrong = f"epsilon = {self.epsilon}; a guarantee needs one over 0 and finite"
            uniform = "contribute = 'uniform' (none of the client's items is sent)"
            controls = f"the controls are {uniform} and contribute = 'clean' (all are)"
            raise CoveyError(f"{self.name}: {wrong}; {controls}")

    @property
    def used(self) -> bool:
        """Whether the auxiliary model is used."""
        return bool(self.count or self.user_weight or self.item_weight)

    def _likeness(self, n_items: int, titles: tuple[str, ...], v_ID: Tensor) -> Likeness:
        if self.contribute != "perturbed":
            return Likeness(n_items, None)
        if self.similarity == "items":
            return table_likeness(v_ID, self.bound)
        return likeness(titles, n_items, self.similarity, self.bound)

    # Client, line 2.
    def enrol(self, view: ClientView) -> FieldDict:
        """Contributes the list; the draws are fixed, since new ones would spend the budget again.

        Only OpenDP draws again if a client is asked again.
        """
        if self.similarity == "items" and "items" not in view.model.shared:
            wrong = f"{self.name}: each device has its own item table"
            raise CoveyError(f"{wrong}; compare titles: similarity = 'words'")
        v_ID = view.params["items"][0] if "items" in view.params else torch.zeros(0)
        like = self._likeness(view.catalogue.n_items, view.catalogue.titles, v_ID)
        options = (self.contribute, like, self.epsilon, self.length, self.noise)
        return {"list": contribution(view.data.items, view.rng.home("contribution"), *options)}

    # Server, line 3: the contributed lists and the auxiliary model.
    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        if self.count and not view.objective.pointwise:
            wrong = "scored items are added as examples of one item each, as those of"
            other = f"covey.objectives:Bce; {type(view.objective).__name__} has others"
            raise CoveyError(f"{self.name}: {wrong} {other}; set count = 0 for the contrast alone")
        v_ID = view.public["items"]
        aux = auxiliary.init_auxiliary(view.model, view.catalogue.n_items, view.server_rng, v_ID)
        none = torch.zeros(0, dtype=torch.long, device=v_ID.device)
        state: FieldDict = {"ids": none, "list": none, "offsets": none.new_zeros(1), **aux}
        return self.admit_clients(replace(view, state=state), enrolment)

    def admit_clients(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        """The state with new clients; the first list of a client stays."""
        like = self._likeness(view.catalogue.n_items, view.catalogue.titles, view.public["items"])
        kept = torch.tensor(kept_share(self.contribute, like, self.epsilon))
        state = {**view.state, "tell/items kept": kept}  # in the order of a checkpoint, by name
        if self.contribute == "perturbed":
            state["tell/sensitivity"] = torch.tensor(like.sensitivity)
        if enrolment is None or self.name not in enrolment.extra:
            return state
        ids_N, users, rng = state["ids"], state[f"{PREFIX}user"], view.server_rng
        new = (~torch.isin(enrolment.ids_C, ids_N.to(enrolment.ids_C))).nonzero()[:, 0]
        sent = as_sets(enrolment.extra[self.name]["list"].take(new), view.catalogue.n_items)
        lists = Ragged.cat([Ragged(state["list"], state["offsets"]), sent.to(ids_N.device)])
        start_CD = view.model.private(rng.fold("birth").streams(len(new)), rng)["user"]
        return {
            **state,
            "ids": torch.cat([ids_N, enrolment.ids_C[new].to(ids_N)]),
            "list": lists.values,
            "offsets": lists.offsets,
            f"{PREFIX}user": torch.cat([users, start_CD.to(users)]),
        }

    # Line 6.
    def begin_round(self, view: ServerView) -> FieldDict:
        if not view.round.opens_epoch or not len(view.state["list"]) or not self.used:
            return view.state
        leaves = {k: v.clone() for k, v in parameters(view.state).items()}
        lists = Ragged(view.state["list"], view.state["offsets"])
        options = (self.aux_epochs, self.aux_lr, self.aux_batch, self.aux_negatives)
        auxiliary.Auxiliary(*options).train(view, leaves, lists)
        return {**view.state, **{PREFIX + k: v for k, v in leaves.items()}}

    # Lines 8 and 10.
    def send(self, view: ServerView) -> Sent:
        if view.step != "train" or not len(view.state["ids"]):
            return Sent()
        params, me_C = parameters(view.state), _find(view.state["ids"], view.round.ids_C)
        lists = Ragged(view.state["list"], view.state["offsets"])
        items = auxiliary.top_items(view, params, lists, me_C, self.count) if self.count else {}
        views = self._views(view, params["user"], me_C) if self.user_weight else Sent()
        return Sent(views.shared, {**items, **views.each})

    def _views(self, view: ServerView, users_MD: Tensor, me_C: Tensor) -> Sent:
        """The unit vectors of users, all that Eq. 9 needs, and each client's own; 0 if unknown."""
        unit_MD = F.normalize(users_MD, dim=1)
        if self.against == "all":
            return Sent({"users": unit_MD}, {"me": me_C})
        own_CD = unit_MD[me_C.clamp(min=0)] * (me_C >= 0)[:, None]
        if self.against == "synthetic":
            rng = view.server_rng.fold("synthetic")
            made_KD = auxiliary.synthetic_users(users_MD, self.others, rng)
            each: FieldDict = {"own": own_CD, "me": torch.full_like(me_C, -1)}
            return Sent({"users": F.normalize(made_KD, dim=1)}, each)
        order = view.server_rng.fold("others").permutation(len(unit_MD))[0]
        some_K = order[: self.others].to(me_C.device)
        return Sent({"users": unit_MD[some_K]}, {"own": own_CD, "me": _find(some_K, me_C)})

    # Client.
    def augment(self, view: ClientView, examples: Examples) -> Examples:  # Eq. 7
        """Adds the received items that are not the client's, and removes negatives among them."""
        if "items" not in view.received.each:
            return examples
        items, scores = view.received.each["items"], view.received.each["scores"].values
        label = scores if self.labels == "soft" else torch.ones_like(scores)
        lists = (items, view.data.items, examples.items)
        sent_T, own_T, made_T = (x.owner * view.catalogue.n_items + x.values for x in lists)
        more = Examples(items, label, torch.ones_like(label)).keep(~torch.isin(sent_T, own_T))
        examples = examples.keep((examples.label > 0) | ~torch.isin(made_T, sent_T))
        return examples.append(more.items, more.label)

    def loss(self, view: ClientView) -> Tensor | None:  # Eq. 10
        if not self.user_weight or "me" not in view.received.each:
            return None
        users_KD, each = view.received.shared["users"], view.received.each
        loss_C = user_loss(view.user(), users_KD, each["me"], self.tau, each.get("own"))
        return self.user_weight * loss_C

    # Server, line 14.
    def adjust_model(self, view: ServerView, model: Fields) -> tuple[FieldDict, Fields]:  # Eq. 8
        if not view.round.closes_epoch or not self.item_weight or "items" not in model:
            return view.state, model
        grad_ID = item_gradient(model["items"], view.state[f"{PREFIX}items"][0], self.tau)
        items_ID = model["items"] - self.item_lr * self.item_weight * grad_ID
        return view.state, {**model, "items": items_ID}

    def disclosures(self) -> tuple[Disclosure, ...]:
        field, how = f"{self.name}/list", "each item replaced at random by a similar one"
        if self.contribute == "clean":
            return (Disclosure("enrol", field, "the client's items, as they are"),)
        if self.length:
            spent = self.length * self.epsilon if self.contribute == "perturbed" else INFINITE
            what = f"{self.length} positions of the client's list, {how}"
            return (Disclosure("enrol", field, what, spent),)
        if self.contribute == "uniform":
            lists = Disclosure("enrol", field, "random items; they tell how many the client has")
        else:
            what = f"the client's items, {how}"
            lists = Disclosure("enrol", field, what, self.epsilon, unit="item")
        return lists, Disclosure("enrol", f"{field}/length", "how many items the client has")


def user_loss(
    u_CD: Tensor, users_KD: Tensor, me_C: Tensor, tau: float, own_CD: Tensor | None = None
) -> Tensor:
    """Eq. 9, [C]; 0 for a client that the auxiliary model does not know.

    Clients are contrasted with unit vectors `users_KD`, among which `me_C` is the client's own row,
    or -1. If these are not all users, `own_CD` is the client's unit vector in the auxiliary model.
    """
    # One product for each client: the rounding of a single [C, K] product would depend on C.
    unit_CD = F.normalize(u_CD, dim=1)
    cosine_CK = torch.bmm(unit_CD[:, None], users_KD.to(u_CD).mT.expand(len(u_CD), -1, -1))[:, 0]
    if own_CD is None:
        return F.cross_entropy(cosine_CK / tau, me_C, reduction="none", ignore_index=-1)
    same_C = (unit_CD * own_CD.to(u_CD)).sum(1) / tau
    mine_CK = torch.arange(len(users_KD), device=me_C.device) == me_C[:, None]
    other_CK = (cosine_CK / tau).masked_fill(mine_CK, float("-inf"))
    known_C = (own_CD != 0).any(1).to(u_CD)
    return known_C * (torch.cat([same_C[:, None], other_CK], 1).logsumexp(1) - same_C)


def item_gradient(v_ID: Tensor, aux_ID: Tensor, tau: float) -> Tensor:  # Eq. 8
    """The gradient of the mean over items, in blocks of rows: an item's term moves its row only."""
    aux_ID = F.normalize(aux_ID.to(v_ID), dim=1)
    parts = []
    for index_B in torch.arange(len(v_ID), device=v_ID.device).split(ROWS):
        v_BD = v_ID[index_B].detach().requires_grad_()
        loss = F.cross_entropy(F.normalize(v_BD, dim=1) @ aux_ID.mT / tau, index_B, reduction="sum")
        parts.append(torch.autograd.grad(loss / len(v_ID), v_BD)[0])
    return torch.cat(parts)


def _find(ids_M: Tensor, ids_C: Tensor) -> Tensor:
    """The place of each id in `ids_M`, or -1."""
    order_M, ids_C = ids_M.argsort(), ids_C.to(ids_M.device)
    at_C = torch.searchsorted(ids_M[order_M], ids_C).clamp(max=len(ids_M) - 1)
    row_C = order_M[at_C]
    return torch.where(ids_M[row_C] == ids_C, row_C, -1)

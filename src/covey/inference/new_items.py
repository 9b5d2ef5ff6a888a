"""Adds items after training, while everything else stays as it is.

New items come last in the dataset, whose split is kept. Shape suffixes: E = interactions, I = items
before, M = new items, J = both, D = components of a row.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from covey.aggregate.grouping import Everyone
from covey.contract.fleet import Request
from covey.core import CoveyError, Download, FieldDict, Fields, Sent, Total
from covey.data.dataset import TRAIN, Array, Dataset, check, own_ids
from covey.data.split import SplitConfig, assigned
from covey.data.split import split as split_rows
from covey.engine.fleet.base import Clients
from covey.engine.method import Method
from covey.engine.rounds import Server
from covey.methods.spectral import SubspaceIteration
from covey.methods.titles import title_vectors
from covey.models.spectral import Spectral
from covey.pooled.choice import OfLists
from covey.pooled.popularity import FittedPopularity
from covey.run.assemble import Prepared, clients_of, method_of, prepare_split, simulation_of
from covey.run.config.schema import Config
from covey.run.pooled import fit_pooled

from .scorers import DeviceScorer, PooledScorer, Scorer, whole_state

Owns = Sequence[Any]  # ids of new users or items
Pairs = Iterable[tuple[Any, Any]]  # of a user and a new item, by their ids
Numbers = tuple[dict[str, int], dict[str, int]]  # of users and of items, by the text of their ids
NEAREST = 5  # similar titles whose rows are averaged
SIMILAR = 0.1  # least cosine of a similar title
UNGUARDED = "guards the uploads, and rounds for new items would go without it"


@dataclass(frozen=True)
class CatalogueGrowth:
    """A dataset with new items, and the configuration of a run on it."""

    config: Config
    prepared: Prepared  # the larger dataset and its split
    before: int  # number of items
    titled: bool  # whether the new items have titles

    @property
    def count_M(self) -> Tensor:
        """The number of users that have each new item."""
        train = self.prepared.split.train.values
        return torch.bincount(train, minlength=self.prepared.split.n_items)[self.before :]

    def check_known(self, known_M: Tensor) -> None:
        """Refuses new items of which nothing is known."""
        if not bool(known_M.all()):
            own = own_ids(self.prepared.dataset)[self.before + int((~known_M).nonzero()[0])]
            remedy = "give interactions with it, or a title that shares words with others"
            raise CoveyError(f"nothing is known of item {str(own)!r}; {remedy}")


def grow_catalogue(
    config: Config, prepared: Prepared, numbers: Numbers, items: Iterable[Any], interactions: Pairs
) -> CatalogueGrowth:
    """Adds items to the dataset of a run; `numbers` are those of its users and items by id."""
    if isinstance(items, str):
        raise CoveyError("new items are a list of ids, or {id: title}")
    titles = dict(items) if isinstance(items, Mapping) else dict.fromkeys(items, "")
    new = {str(own): prepared.dataset.n_items + at for at, own in enumerate(titles)}
    if not new:
        raise CoveyError("name at least one new item")
    if known := [own for own in new if own in numbers[1]]:
        raise CoveyError(f"item {known[0]!r} is there already; leave it out")
    pairs = dict.fromkeys(_pair(user, item, numbers[0], new) for user, item in interactions)
    rows = assigned(prepared.dataset, config.split)
    old, added = rows.titles, tuple(title or str(own) for own, title in titles.items())
    if any(titles.values()) and not old:
        old = tuple(map(str, own_ids(rows).tolist()))
    dataset = with_rows(rows, list(pairs), items=list(titles))
    dataset = replace(dataset, titles=(*old, *added) if old else ())
    again = prepared_again(config, dataset)
    return CatalogueGrowth(**again, before=rows.n_items, titled=any(titles.values()))


def prepared_again(config: Config, rows: Dataset) -> dict[str, Any]:
    """The configuration and the prepared data of a run on rows that are assigned to parts."""
    kept = SplitConfig("given", rows="given")
    tree = config.tree | {"split": {"kind": kept.kind, "rows": kept.rows}}
    config = Config.of(tree, config.trust)
    made = prepare_split(config, check(rows), split_rows(rows, kept))
    return {"config": config, "prepared": made}


def _pair(user: Any, item: Any, users: dict[str, int], new: dict[str, int]) -> tuple[int, int]:
    if str(user) not in users:
        why = "interactions are pairs of a user of the dataset and an item"
        raise CoveyError(f"there is no user {str(user)!r}; {why}")
    if str(item) not in new:
        why = "interactions are with those alone"
        raise CoveyError(f"item {str(item)!r} is not one of the new items; {why}")
    return users[str(user)], new[str(item)]


def with_rows(
    rows: Dataset, pairs: list[tuple[int, int]], users: Owns = (), items: Owns = ()
) -> Dataset:
    """Adds users, items and rows at the end; rows in the order given, and in the training part."""
    user_E, item_E = np.array(pairs, np.int64).reshape(-1, 2).T
    made: dict[str, Any] = {"user_E": np.r_[rows.user_E, user_E]}
    made |= {"item_E": np.r_[rows.item_E, item_E]}
    if rows.time_E is not None:
        made["time_E"] = np.r_[rows.time_E, rows.time_E.max() + 1 + np.arange(len(pairs))]
    assert rows.part_E is not None
    made["part_E"] = np.r_[rows.part_E, np.full(len(pairs), TRAIN, np.uint8)]
    kinds: dict[Literal["users", "items"], Owns] = {"users": users, "items": items}
    for kind, own in kinds.items():
        made[f"n_{kind}"] = getattr(rows, f"n_{kind}") + len(own)
        made |= {kind: _joined(own_ids(rows, kind), own, kind)} if own else {}
    return replace(rows, **made)


def _joined(ids: Array, own: Owns, kind: str) -> Array:
    """Joins ids, which stay whole numbers if they are."""
    if ids.dtype.kind not in "iu":
        return np.concatenate([ids, np.array([str(name) for name in own])])
    try:
        return np.concatenate([ids, np.array([int(name) for name in own], ids.dtype)])
    except (ValueError, TypeError, OverflowError) as error:
        message = f"the ids of this dataset are whole numbers; give new {kind} such ids"
        raise CoveyError(message) from error


def with_new_items(scorer: Scorer, growth: CatalogueGrowth, rounds: int) -> Scorer:
    """Returns a scorer of old and new items; `Recommender.add_items` explains `rounds`."""
    if isinstance(scorer, PooledScorer):
        if not isinstance(scorer.fitted, OfLists | FittedPopularity):
            why = "a pooled model with a vector for each item has none for a new one"
            raise CoveyError(f"{why}; fit again with it")
        growth.check_known(growth.count_M > 0)
        return PooledScorer(fit_pooled(growth.config, growth.prepared)[0])  # a closed form
    assert isinstance(scorer, DeviceScorer)
    method = method_of(growth.config, growth.prepared.catalogue)
    _check(method)
    for option in ("secure", "encrypted"):
        if getattr(growth.config.fleet, option):
            raise CoveyError(f"fleet.{option} {UNGUARDED}; fit again")
    start_MD = _start(scorer.server.public["items"], growth)
    clients = clients_of(growth.config, growth.prepared, method)
    if isinstance(method.model, Spectral):
        new = _moved(scorer, growth.config, clients, start_MD)
        public = _rows_from_reports(new, growth, start_MD)
    else:
        program = clients.program
        assert program.solver is not None
        solver = replace(program.solver, phases=(("items",),))  # trains the item table alone
        trainers = replace(clients, program=replace(program, solver=solver, mechanisms=()))
        new = _moved(scorer, growth.config, trainers, start_MD)
        public = _trained_rows(new, method, growth, start_MD, rounds or scorer.participations)
    new = _moved(scorer, growth.config, clients, public["items"][growth.before :])
    return replace(new, server=Server(public))


def _moved(scorer: DeviceScorer, config: Config, clients: Clients, rows_MD: Tensor) -> DeviceScorer:
    """The scorer with other clients, whose item tables have the new rows."""
    fleet = simulation_of(config, clients)
    fleet.load(_extended_state(scorer, rows_MD))
    return replace(scorer, clients=clients, fleet=fleet)


def _check(method: Method) -> None:
    model = method.model
    wrong, mechanisms = "", method.mechanisms
    summed = any(isinstance(m, SubspaceIteration) and m.response != "ease" for m in mechanisms)
    if tuple(model.tables) != ("items",) or "items" not in model.shared:
        wrong = "each device keeps its own item table here, so no row can be added for all"
    elif not isinstance(method.grouping, Everyone) or not (method.solver or summed):
        wrong = "this method has no item table that everybody trains, so no row can be added"
    if wrong:
        raise CoveyError(f"{wrong}; fit again")
    for part in mechanisms:
        if part.implements("receive_uploads"):
            why = "learns from every upload, and rounds for new items would go without it"
            raise CoveyError(f"{part.name!r} {why}; fit again")
        if part.implements("base_model"):
            why = "rests on sums without the new items"
            raise CoveyError(f"{part.name!r} {why}; fit again with them")
        if part.implements("protect_upload") or part.implements("filter_uploads"):
            raise CoveyError(f"{part.name!r} {UNGUARDED}; fit again")


def _start(items_ID: Tensor, growth: CatalogueGrowth) -> Tensor:
    """The first rows [M, D]: averages over items with similar titles, or over all items."""
    mean_MD = items_ID.mean(0).expand(len(growth.count_M), -1).clone()
    like_M = torch.zeros(len(mean_MD), dtype=torch.bool)
    if growth.titled:
        vectors_JD = title_vectors(growth.prepared.dataset.titles)
        like_MI = vectors_JD[growth.before :] @ vectors_JD[: growth.before].mT
        near_MK, place_MK = like_MI.topk(min(NEAREST, growth.before), 1)
        near_MK = torch.where(near_MK < SIMILAR, 0.0, near_MK)
        like_M = near_MK.sum(1) > 0
        weight_MK = (near_MK / near_MK.sum(1, keepdim=True).clamp(min=SIMILAR)).to(items_ID)
        named_MD = torch.einsum("mk,mkd->md", weight_MK, items_ID[place_MK.to(items_ID.device)])
        mean_MD[like_M] = named_MD[like_M.to(items_ID.device)]
    growth.check_known(like_M | (growth.count_M > 0))
    return mean_MD


def _extended_state(scorer: DeviceScorer, rows_MD: Tensor) -> Fields:
    """The state of the fleet with the new rows in every item table that a client has received."""
    state = {}
    for name, value in whole_state(scorer.fleet).items():
        value = value.clone()
        if name.startswith("rows/tuned/") and name.endswith("/height"):
            value = torch.tensor(len(scorer.server.public["items"]) + len(rows_MD))
        if name.startswith("version/received/items/"):
            value = torch.cat([value, rows_MD[None].to(value)], 1)
        state[name] = value
    return state


def _trained_rows(
    scorer: DeviceScorer, method: Method, growth: CatalogueGrowth, start_MD: Tensor, rounds: int
) -> Fields:
    """Trains for some rounds, and keeps only the rows of new items that have interactions."""
    people, old = scorer.clients.population, growth.before
    public = dict(scorer.server.public)
    public["items"] = torch.cat([public["items"], start_MD])
    moves_J = torch.cat([torch.zeros(old, dtype=torch.bool), growth.count_M > 0]).to(people.device)
    ids_C, state = people.honest(scorer.fleet.ids_N), FieldDict()
    numbers = range(scorer.round + 1, scorer.round + 1 + rounds)
    fold = method.combine.reads_uploads == "total"
    for number in numbers if bool(moves_J.any()) else ():
        sent = Download(Sent({k: v for k, v in public.items() if k not in method.model.kept}))
        upload = scorer.fleet.ask(Request("train", number, ids_C, sent, fold=fold))
        update, _ = method.combine.combine(upload, ("items",))
        own = {"items": update["items"] * moves_J[:, None].to(update["items"])}
        state, moved = method.server_step.step(state, {"items": public["items"]}, own)
        public["items"] = torch.where(moves_J[:, None], moved["items"], public["items"])
    return public


def _rows_from_reports(scorer: DeviceScorer, growth: CatalogueGrowth, start_MD: Tensor) -> Fields:
    """Computes in one round the rows that subspace iteration gives new items for a fixed basis."""
    public, old = scorer.server.public, growth.before
    count_M = growth.count_M.to(public["items"])
    items_JD = torch.cat([public["items"], torch.zeros_like(start_MD)])
    part = next(m for m in scorer.clients.program.mechanisms if isinstance(m, SubspaceIteration))
    half_M = count_M.clamp(min=1) ** part.item_power
    weight_J = torch.cat([public["weight"], half_M**-2])
    sent = Download(Sent({"items": items_JD, "weight": weight_J, "filter": public["filter"]}), {})
    ids_C = scorer.clients.population.honest(scorer.fleet.ids_N)
    answers = scorer.fleet.ask(Request("report", scorer.round + 1, ids_C, sent, fold=True))
    assert isinstance(answers, Total)
    sum_JD = answers.extra[part.name]["rows"][:, : items_JD.shape[1]]
    sum_JD = sum_JD * weight_J.sqrt()[:, None]  # A'A Q
    basis_ID = public["items"] * public["weight"].sqrt()[:, None]  # Q
    step_DD = basis_ID.mT @ sum_JD[:old]  # R of A'A Q = Q R
    new_MD = sum_JD[old:] @ torch.linalg.pinv(step_DD) * half_M[:, None]
    rows_MD = torch.where(count_M[:, None] > 0, new_MD, start_MD)
    items_JD = torch.cat([public["items"], rows_MD])
    return {"items": items_JD, "weight": weight_J, "filter": public["filter"]}

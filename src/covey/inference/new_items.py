"""Items added after training: their rows are found while everything else stands still.

Shape suffixes: I = items before, M = new items, J = both, D = numbers of a row, E = D and the degree.
"""

from dataclasses import replace

import torch
from torch import Tensor

from covey.aggregate.grouping import Everyone
from covey.contract.fleet import Request
from covey.core.errors import CoveyError
from covey.core.messages import Download, Sent, Total
from covey.core.ragged import FieldDict, Fields
from covey.engine.client.program import Program
from covey.engine.method import Method
from covey.engine.rounds import Server
from covey.methods.spectral import SubspaceIteration
from covey.methods.titles import title_vectors
from covey.models.spectral import Spectral
from covey.pooled.ease import FittedEase
from covey.pooled.popularity import FittedPopularity
from covey.run.assemble import clients_of, method_of, simulation_of
from covey.run.pooled import fit_pooled

from .catalogue_growth import Growth
from .scorers import Devices, PooledScorer, Scorer

NEAREST = 5  # titles that a new one is the mean of
ALIKE = 0.1  # cosine that a title needs to count


def grown(scorer: Scorer, growth: Growth, rounds: int) -> Scorer:
    """A scorer of the old items and the new ones; the old one is left as it is."""
    if isinstance(scorer, PooledScorer):
        if not isinstance(scorer.fitted, FittedEase | FittedPopularity):
            raise CoveyError(
                "a pooled model with a vector for each item has none for a new one; fit again with it"
            )
        if bool((growth.taken_M == 0).any()):
            raise growth.unknown(growth.taken_M == 0)
        return PooledScorer(
            fit_pooled(growth.config, growth.prepared)[0]
        )  # a closed form of the lists
    assert isinstance(scorer, Devices)
    method = method_of(growth.config, growth.prepared.catalogue)
    _check(method)
    if growth.config.fleet.secure:
        raise CoveyError(
            "fleet.secure guards the uploads, and rounds for new items would go without it; fit again"
        )
    start_MD = _start(scorer.server.public["items"], growth)
    clients = clients_of(growth.config, growth.prepared, method)
    summed = isinstance(method.model, Spectral)
    guest = clients if summed else replace(clients, program=_only_items(clients.program))
    fleet = simulation_of(growth.config, guest)
    fleet.load(_grown_state(scorer, start_MD, growth.prepared.split.n_items))
    new = replace(scorer, clients=guest, fleet=fleet)
    if summed:
        public = _reported(new, growth, start_MD)
    else:
        public = _folded(new, method, growth, start_MD, rounds or scorer.taken)
        fleet = simulation_of(growth.config, clients)
    new = replace(new, clients=clients, fleet=fleet)
    fleet.load(
        _grown_state(scorer, public["items"][growth.before :], growth.prepared.split.n_items)
    )
    return replace(new, server=Server(public))


def _check(method: Method) -> None:
    model = method.model
    if tuple(model.tables) != ("items",) or "items" not in model.shared:
        raise CoveyError(
            "each device keeps its own item table here, so no row can be added for all; fit again"
        )
    summed = any(
        isinstance(m, SubspaceIteration) and m.response != "ease" for m in method.mechanisms
    )
    if not isinstance(method.grouping, Everyone) or not (method.solver or summed):
        raise CoveyError(
            "this method has no item table that everybody trains, so no row can be added; fit again"
        )
    if rests := [m.name for m in method.mechanisms if m.implements("base_model")]:
        raise CoveyError(f"{rests[0]!r} rests on sums without the new items; fit again with them")
    if guards := [
        m.name
        for m in method.mechanisms
        if m.implements("protect_upload") or m.implements("filter_uploads")
    ]:
        raise CoveyError(
            f"{guards[0]!r} guards the uploads, and rounds for new items would go without it; fit again"
        )


def _start(items_ID: Tensor, growth: Growth) -> Tensor:
    """Rows to begin with: the mean of those with the nearest titles, else of all."""
    mean_MD = items_ID.mean(0).expand(len(growth.taken_M), -1).clone()
    like_M = torch.zeros(len(mean_MD), dtype=torch.bool)
    if growth.titled:
        vectors_JD = title_vectors(growth.prepared.dataset.titles)
        like_MI = vectors_JD[growth.before :] @ vectors_JD[: growth.before].mT
        near_MK, place_MK = like_MI.topk(min(NEAREST, growth.before), 1)
        near_MK = torch.where(near_MK < ALIKE, 0.0, near_MK)
        like_M = near_MK.sum(1) > 0
        weight_MK = (near_MK / near_MK.sum(1, keepdim=True).clamp(min=ALIKE)).to(items_ID)
        named_MD = torch.einsum("mk,mkd->md", weight_MK, items_ID[place_MK.to(items_ID.device)])
        mean_MD[like_M] = named_MD[like_M.to(items_ID.device)]
    if bool((bare_M := ~like_M & (growth.taken_M == 0)).any()):
        raise growth.unknown(bare_M)
    return mean_MD


def _grown_state(devices: Devices, rows_MD: Tensor, n_items: int) -> Fields:
    """What the clients keep, with the new rows in every table that one of them last received."""
    state = {}
    for name, value in devices.fleet.state().items():
        value = value.clone()
        if name.startswith("rows/tuned/") and name.endswith("/height"):
            value = torch.tensor(n_items)
        if name.startswith("version/received/items/"):
            value = torch.cat([value, rows_MD[None].to(value)], 1)
        state[name] = value
    return state


def _folded(
    devices: Devices, method: Method, growth: Growth, start_MD: Tensor, rounds: int
) -> Fields:
    """Rounds of plain training, of which only the rows of new items with interactions are kept."""
    people, old = devices.clients.population, growth.before
    public = dict(devices.server.public)
    public["items"] = torch.cat([public["items"], start_MD])
    moves_J = torch.cat([torch.zeros(old, dtype=torch.bool), growth.taken_M > 0]).to(people.device)
    ids_C, drawer = people.honest(devices.fleet.ids_N), FieldDict()
    for number in (
        range(devices.round + 1, devices.round + 1 + rounds) if bool(moves_J.any()) else ()
    ):
        sent = Download(Sent({k: v for k, v in public.items() if k not in method.model.kept}))
        upload = devices.fleet.ask(
            Request("train", number, ids_C, sent, fold=method.combine.reads_uploads == "total")
        )
        update, _ = method.combine.combine(upload, ("items",))
        update_JD = update["items"] * moves_J[:, None].to(update["items"])
        drawer, moved = method.server_step.step(
            drawer, {"items": public["items"]}, {"items": update_JD}
        )
        public["items"] = torch.where(moves_J[:, None], moved["items"], public["items"])
    return public


def _only_items(program: Program) -> Program:
    """Clients that train the item table and nothing else."""
    assert program.solver is not None
    return replace(program, solver=replace(program.solver, phases=(("items",),)), mechanisms=())


def _reported(devices: Devices, growth: Growth, start_MD: Tensor) -> Fields:
    """One round of reports: the rows that subspace iteration would give new items if the basis stood still."""
    public, old = devices.server.public, growth.before
    taken_M = growth.taken_M.to(public["items"])
    items_JD = torch.cat([public["items"], torch.zeros_like(start_MD)])
    part = next(m for m in devices.clients.program.mechanisms if isinstance(m, SubspaceIteration))
    half_M = taken_M.clamp(min=1) ** part.item_power
    weight_J = torch.cat([public["weight"], half_M**-2])
    sent = Download(Sent({"items": items_JD, "weight": weight_J, "filter": public["filter"]}), {})
    ids_C = devices.clients.population.honest(devices.fleet.ids_N)
    answers = devices.fleet.ask(Request("report", devices.round + 1, ids_C, sent, fold=True))
    assert isinstance(answers, Total)
    sum_JD = (
        answers.extra[part.name]["rows"][:, : items_JD.shape[1]] * weight_J.sqrt()[:, None]
    )  # A'A Q
    basis_ID = public["items"] * public["weight"].sqrt()[:, None]  # Q
    step_DD = basis_ID.mT @ sum_JD[:old]  # R of A'A Q = Q R
    new_MD = sum_JD[old:] @ torch.linalg.pinv(step_DD) * half_M[:, None]
    rows_MD = torch.where(taken_M[:, None] > 0, new_MD, start_MD)
    return {
        "items": torch.cat([public["items"], rows_MD]),
        "weight": weight_J,
        "filter": public["filter"],
    }

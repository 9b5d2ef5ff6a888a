"""Attackers alone and in small runs: one upload, and the exposure of a target after ten rounds."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from covey.aggregate.combine import ItemMean
from covey.contract.aggregation import Combine
from covey.contract.attack import Attack, AttackView
from covey.contract.fleet import Request
from covey.contract.mechanism import Mechanism
from covey.contract.model import Model
from covey.contract.views import TrainingData
from covey.core.messages import Catalogue, Download, Sent, Upload
from covey.core.ragged import FieldDict, Ragged
from covey.core.rng import Rng
from covey.engine.client.malicious import Malicious, SharedMemory
from covey.engine.client.program import LocalData, Program
from covey.engine.method import Method
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing.world import Play, Setting, World

TARGET = 37
IDS = torch.tensor([7, 8])


def view_of(
    attack: Attack,
    table_ID: Tensor,
    *,
    user_CD: Tensor | None = None,
    popularity: Sequence[float] = (),
    memory: FieldDict | None = None,
    known: Ragged | None = None,
    model: Model | None = None,
    round: int = 1,
) -> AttackView:
    """Two attackers, clients 7 and 8, about to train."""
    none = Ragged.of([[], []])
    shared = model.public(len(table_ID), Rng.server(0, 0, "x")) if model else {}
    shared = {k: v.to(table_ID) for k, v in shared.items()} | {"items": table_ID}
    catalogue = Catalogue(len(table_ID), (), torch.tensor(popularity) if popularity else None)
    return AttackView(
        "train",
        round,
        Download(Sent(dict(shared))),
        TrainingData(none, none),
        IDS,
        Rng.of(0, round, IDS).fold(attack.name),
        model or MF(table_ID.shape[1]),
        catalogue,
        memory or {},
        {} if user_CD is None else {"user": user_CD},
        known,
    )


def poisoned(attack: Attack, view: AttackView) -> Upload:
    return attack.poison(view, Upload(IDS, torch.ones(2)))[1]


def trained(
    attack: Attack, table_ID: Tensor, user_CD: Tensor, popularity: Sequence[float] = ()
) -> tuple[Upload, Upload]:
    """One step of rate 1 on MF: what two attackers and honest clients with their lists upload."""
    view = view_of(attack, table_ID, popularity=popularity)
    program = Program(MF(table_ID.shape[1]), Bce(1), view.catalogue, Local("sgd", 1.0, 1))
    bad = Malicious(program, attack, 7, memory=SharedMemory())
    rng, kept = Rng.of(0, 1, IDS), {"user": user_CD}
    request = Request("train", 1, IDS, view.download)
    own = view_of(attack, table_ID, user_CD=user_CD, popularity=popularity)
    lists = attack.profile(own)  # type: ignore[attr-defined]
    found = (
        who.answer(request, dict(kept), LocalData(data), rng)[1]
        for who, data in ((bad, view.data), (program, lists))
    )
    return next(found), next(found)


def after(
    attack: Attack | None,
    combine: Combine | None = None,
    *defences: Mechanism,
    wire: bool = False,
    weighting: Literal["equal", "examples"] = "equal",
) -> Play:
    """Ten rounds of all 45 clients; the last 5, without items, attack or train honestly."""
    world = World.of(40, 60, attackers=5)
    solver, combine = Local("sgd", 0.5, 3), combine or ItemMean()
    model = NCF(4, (8,), scale=0.1)
    method = Method(
        model, Bce(), world.catalogue, solver, defences, combine=combine, weighting=weighting
    )
    return (
        Play(method, world, Setting(cohort=45, wire=wire, dtype=torch.float64), attack)
        .begin()
        .go(10)
    )


def exposure(play: Play) -> float:
    """Share of honest users with the target among the top 5 of what they have not seen."""
    seen = play.world.data.training.items
    honest = [
        c
        for c in range(play.world.n_honest)
        if TARGET not in seen.values[seen.offsets[c] : seen.offsets[c + 1]]
    ]
    user_CD = torch.cat([play.kept(c)["user"] for c in honest])
    params = {k: v[None] for k, v in play.server.public.items()}
    score_CI = play.method.model.score(params, user_CD, params["items"])
    for row, c in enumerate(honest):
        score_CI[row, seen.values[seen.offsets[c] : seen.offsets[c + 1]]] = -torch.inf
    return float((score_CI.topk(5).indices == TARGET).any(1).float().mean())

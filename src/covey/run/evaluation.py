"""Evaluation of a federated run: each client ranks its held-out items and reports its metrics."""

from typing import Any

import torch
from torch import Tensor

from covey.contract.fleet import Request
from covey.core import Download, FieldDict, Fields, Ragged, Rng, Sent, Upload, below
from covey.data.split import Split
from covey.engine.client.program import Program, materialised
from covey.engine.client.ranking import Ranker
from covey.engine.fleet.base import Population, RunFleet
from covey.engine.rounds import Server
from covey.evaluate.exposure import summary as exposure
from covey.evaluate.metrics import clients_to_measure, summarise
from covey.evaluate.personal import best_items, drawn
from covey.evaluate.personal import summary as personal
from covey.evaluate.ranking import merged
from covey.run.config.schema import Config

AT_ONCE = 1 << 20  # scores of items


def evaluate_clients(
    config: Config, people: Population, fleet: RunFleet, server: Server, number: int
) -> tuple[Tensor, Fields]:
    """Asks honest clients, `evaluate.clients` at most, to evaluate themselves after a round.

    Returns their ids [C], and metrics [C] by name, such as `test/ndcg@10`.
    """
    ids_C = people.honest(fleet.ids_N)
    if config.evaluate.clients:
        ids_C = clients_to_measure(people.test_lengths_N[ids_C], config.evaluate.clients)
    sent = Sent({k: v for k, v in server.public.items() if k not in people.program.model.kept})
    with fleet.meter.paused():  # evaluation is not part of the method
        answers = fleet.ask(Request("evaluate", number, ids_C, Download(sent)))
    assert isinstance(answers, Upload)
    return ids_C, answers.extra.get("evaluate", {})


def averages(metrics: Fields, activity_C: Tensor) -> dict[str, Any]:
    """Averages over clients of every part that was measured, and the exposure of targets."""
    out: dict[str, Any] = {}
    for part in ("valid", "test"):
        if own := below(metrics, f"{part}/"):
            out[part] = summarise(own, activity_C)
    pushed = exposure(metrics)
    return {**out, "target": pushed} if pushed else out


def is_better(config: Config, row: dict[str, Any], best: dict[str, Any]) -> bool:
    """Whether a row replaces the best: if it is as good, or if there is no validation part."""
    if "valid" not in row:
        return True
    key = config.evaluate.selector
    return bool(row["valid"][key] >= best["valid"][key])


@torch.no_grad()
def lists(
    config: Config, split: Split, people: Population, fleet: RunFleet, server: Server, number: int
) -> dict[str, Any]:
    """Compares the best items of some clients; {} if they keep their state to themselves."""
    private = getattr(fleet, "private", None)
    if private is None:
        return {}
    ids_N, found = drawn(people.honest(fleet.ids_N), config.run.seed), []
    n_items = people.program.catalogue.n_items
    for ids_C in ids_N.split(max(1, AT_ONCE // n_items)):
        known = split.train.take(ids_C.cpu())
        if config.evaluate.history == "known":
            known = merged(known, split.valid.take(ids_C.cpu()))
        for pick, kept in private(ids_C):
            rng = Rng.of(config.run.seed, number, ids_C[pick])
            score_CI = scores(people.program, server, kept, known.take(pick.cpu()), rng)
            found.append(best_items(score_CI.cpu()))
    return {"lists": personal(torch.cat(found), n_items)}


def scores(program: Program, server: Server, kept: FieldDict, history: Ragged, rng: Rng) -> Tensor:
    """Scores of all items [C, I] as on the devices: what was sent, overridden by what they keep."""
    model = program.model
    params = {k: v[None] for k, v in server.public.items() if k not in model.kept}
    params |= {k: kept[k] for k in model.kept} | below(kept, "received/")
    params = materialised(program.mechanisms, params)
    ranker = Ranker.of(model, params, kept, rng, program.mechanisms)
    return ranker.all_items(ranker.user(history.to(rng.key_C.device)))

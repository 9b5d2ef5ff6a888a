"""Evaluation of a federated run: each client ranks its held-out items and reports its metrics."""

from typing import Any

from torch import Tensor

from covey.contract.fleet import Request
from covey.core.messages import Download, Sent, Upload
from covey.core.ragged import Fields
from covey.engine.fleet.base import Population, RunFleet
from covey.engine.rounds import Server
from covey.evaluate.exposure import summary as exposure
from covey.evaluate.metrics import summarise
from covey.run.config.schema import Config

from .floor_and_ceiling import clients_to_measure


def evaluate_clients(
    config: Config, people: Population, fleet: RunFleet, server: Server, number: int
) -> tuple[Tensor, Fields]:
    """Asks honest clients to evaluate themselves with what they rank with after a round.

    Args:
        config: The configuration; `evaluate.clients` limits how many clients are asked.
        people: The clients of the run.
        fleet: The fleet that asks them. Its meter is paused: evaluation is not part of the method.
        server: The server's record.
        number: The number of the round.

    Returns:
        The ids [C] of the clients, and their metrics [C] by name, such as `test/ndcg@10`.
    """
    ids_C = people.honest(fleet.ids_N)
    if config.evaluate.clients:
        ids_C = clients_to_measure(people.test_lengths_N[ids_C], config.evaluate.clients)
    sent = Sent({k: v for k, v in server.public.items() if k not in people.program.model.kept})
    with fleet.meter.paused():
        answers = fleet.ask(Request("evaluate", number, ids_C, Download(sent)))
    assert isinstance(answers, Upload)
    return ids_C, answers.extra.get("evaluate", {})


def averages(metrics: Fields, activity_C: Tensor) -> dict[str, Any]:
    """Averages over clients of every part that was measured, and the exposure of targets."""
    out: dict[str, Any] = {}
    for part in ("valid", "test"):
        prefix = f"{part}/"
        own = {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
        if own:
            out[part] = summarise(own, activity_C)
    pushed = exposure(metrics)
    return {**out, "target": pushed} if pushed else out


def is_better(config: Config, row: dict[str, Any], best: dict[str, Any]) -> bool:
    """Whether a row replaces the best so far.

    Among equals the later one does, as in published code, and without a validation part the last.
    """
    if "valid" not in row:
        return True
    key = config.evaluate.selector
    return bool(row["valid"][key] >= best["valid"][key])

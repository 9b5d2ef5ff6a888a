"""Scores after training: of clients, with what each of them keeps, and of new users.

Shape suffixes: C = users of a chunk, I = items, N = all users.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from covey.contract.fleet import Request
from covey.contract.views import TrainingData
from covey.core import CoveyError, Download, Fields, Ragged, Rng, Sent, below
from covey.engine.client.program import LocalData, Program
from covey.engine.encrypted.fleet import opened
from covey.engine.fleet.base import Clients, Simulation
from covey.engine.rounds import Server
from covey.evaluate.ranking import distinct
from covey.pooled.choice import OfLists, with_lists
from covey.pooled.common import Fitted
from covey.pooled.mf import FittedMF, PooledMF
from covey.pooled.ncf import FittedNCF
from covey.pooled.popularity import FittedPopularity
from covey.pooled.sequence import FittedSequence, PooledBERT4Rec, PooledGRU, PooledSASRec
from covey.run import checkpoint
from covey.run.assemble import Prepared, clients_of, method_of, simulation_of
from covey.run.checkpoint import CHECKPOINT, MODEL, STATE
from covey.run.config.schema import Config
from covey.run.evaluation import averages, evaluate_clients, scores
from covey.run.pooled import fit_pooled, pooled_averages, save_pooled
from covey.run.schedule import batches_of


class Scorer(Protocol):
    """What a recommender ranks with; `history` has all known items of each user, oldest first."""

    def scores(self, ids_C: Tensor, history: Ragged) -> Tensor:
        """Returns scores [C, I] of users of the dataset."""

    def newcomer(self, history: Ragged, rounds: int) -> Tensor:
        """Returns scores [1, I] of a user who is not in the dataset.

        A private part is trained for so many rounds; 0 for as many as that of a client.
        """

    def averages(self, config: Config, prepared: Prepared) -> dict[str, dict[str, float]]:
        """Evaluates the users of the dataset; returns averages by metric for each held-out part."""

    def save(self, config: Config, folder: Path) -> None: ...


@dataclass(frozen=True)
class DeviceScorer:
    """Scores of the clients of a simulation."""

    clients: Clients
    fleet: Simulation  # with their private state
    server: Server  # its record after the last round
    round: int  # the last one
    participations: int  # of a client

    @torch.no_grad()
    def scores(self, ids_C: Tensor, history: Ragged) -> Tensor:
        ids_C = ids_C.to(self.clients.population.device)
        program = self.clients.program
        out_CI = torch.empty(len(ids_C), program.catalogue.n_items)
        for pick, kept in self.fleet.private(ids_C):
            rng = Rng.of(self.clients.seed, self.round, ids_C[pick])
            out_CI[pick.cpu()] = scores(program, self.server, kept, history.take(pick.cpu()), rng)
        return out_CI

    def newcomer(self, history: Ragged, rounds: int) -> Tensor:
        """Trains the private part as on a new device, with a fixed public model; sends nothing."""
        program, device = self.clients.program, self.clients.population.device
        ids_C = torch.tensor([len(self.clients.population)], device=device)  # the id of no client
        lists = history.to(device)
        data = LocalData(TrainingData(lists, distinct(lists)))

        def rng(number: int) -> Rng:
            return Rng.of(self.clients.seed, number, ids_C)

        kept = program.birth(rng(0))
        tables = {k: v for k, v in self.server.public.items() if k in program.model.kept}
        delivery = Request("deliver", 0, ids_C, Download(Sent(dict(tables))))
        kept, _ = program.answer(delivery, kept, data, rng(0))
        public = {k: v for k, v in self.server.public.items() if k not in program.model.kept}
        private = private_part(program)
        for number in range(1, (rounds or self.participations) + 1) if private else ():
            assert private is not None
            request = Request("train", number, ids_C, Download(Sent(dict(public))))
            kept, _ = private.answer(request, kept, data, rng(number))
        with torch.no_grad():
            return scores(program, self.server, kept, history, rng(self.round)).cpu()

    def averages(self, config: Config, prepared: Prepared) -> dict[str, dict[str, float]]:
        people = self.clients.population
        ids_C, metrics = evaluate_clients(config, people, self.fleet, self.server, self.round)
        return averages(metrics, people.lengths_N[ids_C])

    def save(self, config: Config, folder: Path) -> None:
        at = {"round": self.round, "digest": config.digest(), "best": {}, "written": 0}
        checkpoint.Checkpoint(self.server, whole_state(self.fleet), at).save(folder / STATE)


def private_part(program: Program) -> Program | None:
    """Returns a client that trains only its private part, on the base model; None without one."""
    model, solver = program.model, program.solver
    moving = (*model.kept, *(k for k in model.tuned if k in model.shared))
    if solver is None or not moving:
        return None
    phases = [tuple(k for k in phase if k in moving) for phase in solver.phases or (moving,)]
    solver = replace(solver, phases=tuple(p for p in phases if p))
    hooks = ("base_model", "materialise")
    base = tuple(m for m in program.mechanisms if any(map(m.implements, hooks)))
    return replace(program, solver=solver, mechanisms=base)


@dataclass(frozen=True)
class PooledScorer:
    """Scores of a model that was trained on pooled data."""

    fitted: Fitted

    @torch.no_grad()
    def scores(self, ids_C: Tensor, history: Ragged) -> Tensor:
        at_C = torch.arange(len(ids_C), device=self.fitted.items().device)
        if isinstance(self.fitted, OfLists):
            return with_lists(self.fitted, history).score(at_C).cpu()
        if isinstance(self.fitted, FittedSequence):
            return self.fitted.with_history(history).score(at_C).cpu()
        return self.fitted.score(ids_C.to(self.fitted.items().device)).cpu()

    def newcomer(self, history: Ragged, rounds: int) -> Tensor:
        if not isinstance(self.fitted, OfLists | FittedPopularity | FittedSequence):
            wrong = "this pooled model has a vector for each user of its data"
            remedy = "use ease, popularity or a federated method such as fedmf"
            raise CoveyError(f"{wrong} and none for a new one; {remedy}")
        return self.scores(torch.zeros(1, dtype=torch.int64), history)

    def averages(self, config: Config, prepared: Prepared) -> dict[str, dict[str, float]]:
        return pooled_averages(config, prepared, self.fitted)

    def save(self, config: Config, folder: Path) -> None:
        save_pooled(self.fitted, folder)


def load_pooled(config: Config, prepared: Prepared, folder: Path) -> PooledScorer:
    """Loads the model of a run folder; one in closed form is fitted again."""
    model = config.part("pooled")
    if not hasattr(model, "epochs"):
        return PooledScorer(fit_pooled(config, prepared)[0])
    _check_exists(folder / MODEL, folder)
    _, flat = checkpoint.read(folder / MODEL, "covey model 1", config.engine.device)
    if isinstance(model, PooledGRU | PooledSASRec | PooledBERT4Rec):
        stacked = {k: v[None] for k, v in flat.items()}
        train = prepared.split.train
        return PooledScorer(FittedSequence(model.model(), stacked, train, model.last))
    user, item, *rest = (flat[k] for k in sorted(flat))
    layers = tuple(zip(rest[::2], rest[1::2], strict=True))
    kind = FittedMF if isinstance(model, PooledMF) else FittedNCF
    return PooledScorer(kind(user, item, layers))


def load_devices(config: Config, digest: str, prepared: Prepared, folder: Path) -> DeviceScorer:
    """Loads server and clients of a folder; the digest is of the configuration as stored."""
    file = folder / (STATE if (folder / STATE).exists() else CHECKPOINT)
    _check_exists(file, folder)
    method = method_of(config, prepared.catalogue)
    clients = clients_of(config, prepared, method)
    saved = checkpoint.whole(folder, checkpoint.load(file, clients.population.device))
    if saved.progress["digest"] != digest:
        why = f"the checkpoint in {folder} belongs to another configuration"
        raise CoveyError(f"{why}; {checkpoint.AGAIN}")
    rows = {len(v) for k, v in saved.fleet.items() if k.startswith("dense/")}
    server = opened(saved.server, below(saved.fleet, "agreed/"), method)
    n_items = len(server.public["items"])
    if rows - {len(clients.population)} or n_items != prepared.split.n_items:
        why = f"dataset {config.data.name!r} has changed since {folder} was written"
        raise CoveyError(f"{why}; train again")
    fleet = simulation_of(config, clients)
    fleet.load(saved.fleet)
    number = int(saved.progress["round"])
    participations = max(1, number // batches_of(config, prepared.split.n_users))
    return DeviceScorer(clients, fleet, server, number, participations)


def whole_state(fleet: Simulation) -> Fields:
    """Everything that changes during a run, as tensors by name."""
    return getattr(fleet, "whole_state", fleet.state)()


def _check_exists(file: Path, folder: Path) -> None:
    if not file.exists():
        why = f"{folder} has no {file.name}: not trained that far, or too large to be kept"
        raise CoveyError(f"{why}; train with covey run --keep-checkpoint")

"""A small dataset with unusual clients, and a run on it that can be watched and stopped."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from covey.contract.attack import Attack
from covey.contract.fleet import Request
from covey.contract.views import TrainingData
from covey.core import Catalogue, Download, FieldDict, Ragged, Rng, Round, Rows, Sent, Total, Upload
from covey.data.split import SplitConfig, pool
from covey.data.split import split as split_rows
from covey.data.synthetic import Synthetic, generate
from covey.engine.client.blocks import Engine
from covey.engine.client.malicious import Malicious, leaked
from covey.engine.client.program import LocalData, Program
from covey.engine.client.ranking import HeldOut
from covey.engine.fleet.base import Clients, Simulation
from covey.engine.fleet.codec import SIZE_OF_HEADER
from covey.engine.secure.settings import FleetConfig
from covey.evaluate.metrics import EvaluateConfig
from covey.run.assemble import program_of
from covey.run.config.build import class_of
from covey.run.config.schema import is_fleet
from covey.server import Method, Server, admit, enrol, run_round, start

from .compare import cast

WIRE = "covey.engine.fleet.wire:WireFleet"
# From a step, a round and ids [C] to whether the request to each client is lost, [C].
DropOuts = Callable[[str, int, Tensor], Tensor]


@dataclass(frozen=True)
class World:
    """Data of clients: the first has no item, the second all; attackers come last with no item."""

    data: LocalData
    catalogue: Catalogue
    n_honest: int

    @classmethod
    def of(cls, users: int, items: int, attackers: int = 0) -> "World":
        options = Synthetic(users=users - 2, items=items, mean_items=max(2.0, items / 5), groups=4)
        rows = split_rows(generate(options), SplitConfig(kind="loo", order="time"))
        odd, none = Ragged.of([[], list(range(items))]), Ragged.of([[], []])
        attacked = Ragged.of([[]] * attackers)

        def grown(first: Ragged, lists: Ragged) -> Ragged:
            return Ragged.cat([first, lists, attacked])

        training = TrainingData(grown(odd, rows.train), grown(odd, pool(rows, "train")))
        held = HeldOut(grown(none, rows.valid), grown(none, rows.test))
        popularity_I = torch.bincount(rows.train.values, minlength=items).float()
        return cls(LocalData(training, held), Catalogue(items, (), popularity_I), users)


@dataclass
class LossyFleet:
    """A fleet that loses the requests to some clients, and records which clients got one."""

    fleet: Simulation
    lost: DropOuts
    hides: frozenset[str] = frozenset()
    asked: dict[tuple[int, str], set[int]] = field(default_factory=dict)
    messages: int = 0

    @property
    def ids_N(self) -> Tensor:
        return self.fleet.ids_N

    def ask(self, request: Request) -> Upload | Total:
        stay = (~self.lost(request.step, request.round, request.ids_C)).nonzero()[:, 0]
        some = request.take(stay)
        self.asked.setdefault((request.round, request.step), set()).update(some.ids_C.tolist())
        self.messages += len(stay)
        return self.fleet.ask(some)


def no_drop_outs(step: str, round: int, ids_C: Tensor) -> Tensor:
    return torch.zeros_like(ids_C, dtype=torch.bool)


@dataclass(frozen=True)
class Setting:
    """How a run is executed; `wire` and `chunk` do not affect its result."""

    rounds: int = 5
    cohort: int = 8
    wire: bool = False
    chunk: int = 0
    dtype: torch.dtype = torch.float32
    late: int = 0  # the number of clients that join after half of the rounds
    lost: DropOuts = no_drop_outs
    seed: int = 7
    metrics: tuple[str, ...] = ("recall@5", "ndcg@5")


def client_half(method: Method, setting: Setting) -> Program:
    """Returns the program of the clients."""
    evaluate, engine = EvaluateConfig(metrics=setting.metrics), Engine(chunk=setting.chunk)
    return program_of(method, evaluate, engine, setting.seed)


@dataclass
class Play:
    """A run that is executed round by round; `wrap` replaces the program of the clients."""

    method: Method
    world: World
    setting: Setting
    attack: Attack | None = None
    wrap: Callable[[Program], Program] = lambda program: program
    round: int = 0
    program: Program = field(init=False)
    server: Server = field(init=False)
    fleet: Simulation = field(init=False)
    server_side: LossyFleet = field(init=False)

    def __post_init__(self) -> None:
        self.method = replace(self.method, seed=self.setting.seed)
        self.program = program = self.wrap(client_half(self.method, self.setting))
        first, malicious = self.world.n_honest, None
        if attack := self.attack:
            known = leaked(attack, self.world.data.training.items.take(torch.arange(first)), 0)
            malicious = Malicious(program, attack, first, known=known)
        present = first - self.setting.late
        clients = Clients(program, self.world.data, self.setting.seed, present, malicious)
        use = WIRE if self.setting.wire else FleetConfig.use
        self.fleet = class_of(use, (), is_fleet).of(clients)
        self.server_side = LossyFleet(self.fleet, self.setting.lost)
        self.fleet.convert(lambda kept: cast(kept, self.setting.dtype))
        self.server = _cast_server(start(self.method), self.setting.dtype)

    def begin(self) -> "Play":
        """Enrols the clients."""
        server = enrol(self.server, self.server_side, self.method)
        self.server = _cast_server(server, self.setting.dtype)
        return self

    def go(self, rounds: int | None = None) -> "Play":
        """Executes some rounds, or all that are left."""
        last = self.setting.rounds if rounds is None else self.round + rounds
        for number in range(self.round + 1, last + 1):
            if self.setting.late and number == self.setting.rounds // 2 + 1:
                honest = self.world.n_honest
                self.fleet.join(new_C := torch.arange(honest - self.setting.late, honest))
                self.server = admit(self.server, self.server_side, self.method, number, new_C)
            cohort = self.cohort(number)
            self.server, _ = run_round(self.server, self.server_side, self.method, cohort)
            self.round = number
        return self

    def cohort(self, number: int) -> Round:
        """Returns a batch of a shuffled pass over all clients; the last batch is smaller."""
        ids_N, size = self.fleet.ids_N, self.setting.cohort
        batches = -(-len(ids_N) // size)
        turn, place = divmod(number - 1, batches)
        order = Rng.server(self.setting.seed, turn, "cohort").permutation(len(ids_N))[0]
        ids_C = ids_N[order[place * size : (place + 1) * size]]
        return Round(number, ids_C, place == 0, place == batches - 1)

    def honest(self) -> Tensor:
        """Returns the ids of the honest clients that have joined."""
        return self.fleet.ids_N[self.fleet.ids_N < self.world.n_honest]

    def evaluate(self) -> FieldDict:
        """Returns the metrics [C] of the honest clients."""
        ids_C = self.honest()
        download = Download(Sent(dict(self.server.public)))
        answers = self.server_side.ask(Request("evaluate", self.round, ids_C, download))
        if not isinstance(answers, Upload) or len(answers) != len(ids_C):
            raise AssertionError(f"{len(ids_C) - len(answers)} clients did not evaluate themselves")
        return answers.extra["evaluate"]

    def outcome(self) -> dict[str, Any]:
        """Returns what the server has, what clients keep, their metrics, and the traffic."""
        metrics, meter = self.evaluate(), self.fleet.meter
        traffic = {"up": meter.up, "down": meter.down, "bytes": meter.bytes}
        return {
            "public": self.server.public,
            "memory": self.server.state,
            "kept": {c: self.kept(c) for c in range(len(self.world.data.training.items))},
            "metrics": metrics,
            "traffic": {**traffic, "dropped": meter.dropped},
        }

    def kept(self, client: int) -> dict[str, Any]:
        """Returns a client's private state without empty or zero fields, which a store may omit."""
        ((_, state),) = self.fleet.private(torch.tensor([client]))
        flat: dict[str, Tensor] = {}
        for name, value in state.items():
            if isinstance(value, Rows):
                flat |= {f"{name}/items": value.items.values, f"{name}/rows": value.values}
            else:
                flat[name] = value
        return {name: value for name, value in flat.items() if bool((value != 0).any())}

    def unaccounted(self) -> int:
        """Returns the bytes of uploads that belong to no envelope and no counted field."""
        meter = self.fleet.meter
        return meter.up - sum(meter.bytes.values()) - SIZE_OF_HEADER * self.server_side.messages


def _cast_server(server: Server, dtype: torch.dtype) -> Server:
    return Server(cast(server.public, dtype), cast(server.state, dtype))

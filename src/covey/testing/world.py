"""A small world with awkward clients in it, and one run in it that can be watched, stopped and compared."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from covey.contract.attack import Attack
from covey.contract.fleet import Request
from covey.contract.views import TrainingData
from covey.core.messages import Catalogue, Download, Round, Sent, Total, Upload
from covey.core.ragged import FieldDict, Ragged, Rows
from covey.core.rng import Rng
from covey.data.split import SplitConfig, pool
from covey.data.split import split as split_rows
from covey.data.synthetic import Synthetic, generate
from covey.engine.client.blocks import Engine
from covey.engine.client.malicious import Malicious, leaked
from covey.engine.client.program import LocalData, Program
from covey.engine.client.ranking import HeldOut
from covey.engine.fleet.base import Clients, Simulation
from covey.engine.fleet.codec import SIZE_OF_HEADER
from covey.engine.method import Method
from covey.engine.rounds import Server, admit, enrol, run_round, start
from covey.engine.secure.settings import FleetConfig
from covey.evaluate.metrics import EvaluateConfig
from covey.run.assemble import program_of
from covey.run.config.build import class_of
from covey.run.config.schema import is_fleet

from .compare import cast

WIRE = "covey.engine.fleet.wire:WireFleet"
Lost = Callable[[str, int, Tensor], Tensor]  # step, round, ids [C] -> who does not hear of it, [C]


@dataclass(frozen=True)
class World:
    """Client 0 has no item at all, client 1 every item; attackers stand at the end with empty lists."""

    data: LocalData
    catalogue: Catalogue
    n_honest: int

    @classmethod
    def of(cls, users: int, items: int, attackers: int = 0) -> "World":
        options = Synthetic(users=users - 2, items=items, mean_items=max(2.0, items / 5), groups=4)
        rows = split_rows(generate(options), SplitConfig(kind="loo", order="time"))
        odd, none = Ragged.of([[], list(range(items))]), Ragged.of([[], []])
        crew = Ragged.of([[]] * attackers)

        def grown(first: Ragged, lists: Ragged) -> Ragged:
            return Ragged.cat([first, lists, crew])

        training = TrainingData(grown(odd, rows.train), grown(odd, pool(rows, "train")))
        held = HeldOut(grown(none, rows.valid), grown(none, rows.test))
        popularity_I = torch.bincount(rows.train.values, minlength=items).float()
        return cls(LocalData(training, held), Catalogue(items, (), popularity_I), users)


@dataclass
class Losing:
    """A fleet some of whose clients never hear a request; keeps a record of who did."""

    fleet: Simulation
    lost: Lost
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


def nobody(step: str, round: int, ids_C: Tensor) -> Tensor:
    return torch.zeros_like(ids_C, dtype=torch.bool)


@dataclass(frozen=True)
class Setting:
    """How a run is run; none of this may change what comes out of it, but `rounds`, `late` and `lost`."""

    rounds: int = 5
    cohort: int = 8
    wire: bool = False
    chunk: int = 0
    dtype: torch.dtype = torch.float32
    late: int = 0  # clients that join after half of the rounds
    lost: Lost = nobody
    seed: int = 7
    metrics: tuple[str, ...] = ("recall@5", "ndcg@5")


def client_half(method: Method, setting: Setting) -> Program:
    return program_of(
        method, EvaluateConfig(metrics=setting.metrics), Engine(chunk=setting.chunk), setting.seed
    )


@dataclass
class Play:
    """One run: a method, a fleet, and where they are."""

    method: Method
    world: World
    setting: Setting
    attack: Attack | None = None
    wrap: Callable[[Program], Program] = lambda program: program
    round: int = 0
    program: Program = field(init=False)
    server: Server = field(init=False)
    fleet: Simulation = field(init=False)
    heard: Losing = field(init=False)

    def __post_init__(self) -> None:
        self.method = replace(self.method, seed=self.setting.seed)
        self.program = program = self.wrap(client_half(self.method, self.setting))
        first = self.world.n_honest
        crew = None
        if self.attack:
            lists = self.world.data.training.items.take(torch.arange(first))
            crew = Malicious(program, self.attack, first, known=leaked(self.attack, lists, 0))
        present = first - self.setting.late
        clients = Clients(program, self.world.data, self.setting.seed, present, crew)
        self.fleet = class_of(WIRE if self.setting.wire else FleetConfig.use, (), is_fleet).of(
            clients
        )
        self.heard = Losing(self.fleet, self.setting.lost)
        self.fleet.convert(lambda kept: cast(kept, self.setting.dtype))
        self.server = _cast_server(start(self.method), self.setting.dtype)

    def begin(self) -> "Play":
        self.server = _cast_server(enrol(self.server, self.heard, self.method), self.setting.dtype)
        return self

    def go(self, rounds: int | None = None) -> "Play":
        last = self.setting.rounds if rounds is None else self.round + rounds
        for number in range(self.round + 1, last + 1):
            if self.setting.late and number == self.setting.rounds // 2 + 1:
                self._admit(number)
            self.server, _ = run_round(self.server, self.heard, self.method, self.cohort(number))
            self.round = number
        return self

    def _admit(self, number: int) -> None:
        new_C = torch.arange(self.world.n_honest - self.setting.late, self.world.n_honest)
        self.fleet.join(new_C)
        self.server = admit(self.server, self.heard, self.method, number, new_C)

    def cohort(self, number: int) -> Round:
        """Batches of a shuffled pass over everybody; the last one of a pass is small."""
        ids_N, size = self.fleet.ids_N, self.setting.cohort
        batches = -(-len(ids_N) // size)
        turn, place = divmod(number - 1, batches)
        order = Rng.server(self.setting.seed, turn, "cohort").permutation(len(ids_N))[0]
        ids_C = ids_N[order[place * size : (place + 1) * size]]
        return Round(number, ids_C, place == 0, place == batches - 1)

    def honest(self) -> Tensor:
        """The honest clients that are there."""
        return self.fleet.ids_N[self.fleet.ids_N < self.world.n_honest]

    def evaluate(self) -> FieldDict:
        ids_C = self.honest()
        answers = self.heard.ask(
            Request("evaluate", self.round, ids_C, Download(Sent(dict(self.server.public))))
        )
        if not isinstance(answers, Upload) or len(answers) != len(ids_C):
            raise AssertionError(f"{len(ids_C) - len(answers)} clients did not evaluate themselves")
        return answers.extra["evaluate"]

    def outcome(self) -> dict[str, Any]:
        """All that a run leaves: what the server has, what clients keep, how well they are served, the traffic."""
        metrics, meter = self.evaluate(), self.fleet.meter
        return {
            "public": self.server.public,
            "memory": self.server.state,
            "kept": {c: self.kept(c) for c in range(len(self.world.data.training.items))},
            "metrics": metrics,
            "traffic": {
                "up": meter.up,
                "down": meter.down,
                "bytes": meter.bytes,
                "dropped": meter.dropped,
            },
        }

    def kept(self, client: int) -> dict[str, Any]:
        """A client's private state; fields that are empty or zero are left out, as a store may hold them or not."""
        ((_, drawer),) = self.fleet.private(torch.tensor([client]))
        flat: dict[str, Tensor] = {}
        for name, value in drawer.items():
            rows = isinstance(value, Rows)
            flat |= (
                {f"{name}/items": value.items.values, f"{name}/rows": value.values}
                if rows
                else {name: value}
            )
        return {name: value for name, value in flat.items() if bool((value != 0).any())}

    def unaccounted(self) -> int:
        """Bytes that came in beside the envelopes and the fields that were counted."""
        meter = self.fleet.meter
        return meter.up - sum(meter.bytes.values()) - SIZE_OF_HEADER * self.heard.messages


def _cast_server(server: Server, dtype: torch.dtype) -> Server:
    return Server(cast(server.public, dtype), cast(server.state, dtype))

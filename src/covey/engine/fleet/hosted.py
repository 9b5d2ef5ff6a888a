"""Clients that live together in one process, as rows of tensors.

Their random streams follow from their global ids, so it makes no difference who else lives here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from covey.aggregate.fold import Fold
from covey.contract.fleet import Request
from covey.core import FieldDict, Fields, Rng, Scales, Total, Upload
from covey.engine.client.malicious import ClientProgram, Malicious
from covey.engine.client.program import LocalData, Program

from .codec import field_bytes, rows_bytes
from .memory import limit_of, release_heap
from .meter import Meter
from .store import Store
from .validation import checked

LARGEST_SUM = 4096  # clients of one summed pass (engine.one_pass); fixed, so that its bits are
BORN_AT_ONCE = 65_536  # clients whose start is drawn at a time

# About how many numbers the answer of a client holds, from which chunks are cut to fit the memory.
ROW = 64  # numbers of an item row
EXAMPLES = 5  # that an item of a list makes: itself and four negatives
LEAST = 4096  # numbers of a client with a short list: layers, and what mechanisms send
RANKING = 4  # numbers per item while a client ranks: its score, and what is made of it to rank


@dataclass
class Answer:
    """What some clients answered: their sum, or their uploads in parts, in any order."""

    fold: Fold | None
    uploads: list[Upload]
    meter: Meter  # what was sent, and what was left out


@dataclass
class Hosted:
    """The engine for clients that live together."""

    program: Program  # what honest clients execute
    ids_N: Tensor  # the ids of the clients, ascending
    data: LocalData  # their local data, in this order
    seed: int  # the seed of the run
    n_all: int  # one more than the largest id of any client of the run, here or elsewhere
    malicious: Malicious | None = None  # what clients with an id from `malicious.first` on execute
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = self._empty(len(self.ids_N))
        self._born(torch.arange(len(self.ids_N), device=self.ids_N.device))

    def _empty(self, n: int) -> Store:
        """A store; on a CPU tables that clients change in few rows and get back are differences."""
        model, cpu = self.program.model, self.ids_N.device.type == "cpu"
        own = frozenset(model.tables).intersection(model.kept, model.uploaded)
        sparse = own if cpu and not self._whole_table() else frozenset()
        return Store(n, limit_of(self.program.engine), sparse)

    def _born(self, rows: Tensor) -> None:
        for some in rows.split(BORN_AT_ONCE):
            rng = Rng.of(self.seed, 0, self.ids_N[some])
            self.store.put(some, self.program.birth(rng))

    def add(self, ids_C: Tensor, data: LocalData) -> None:
        """Adds clients, `ids_C` [C] with their data; they start like new ones."""
        old, kept = self.ids_N, self.store.state(torch.arange(len(self.ids_N)))
        order = torch.cat([old, ids_C]).argsort()
        self.data = LocalData.cat([self.data, data]).take(order)
        self.ids_N = torch.cat([old, ids_C])[order]
        self.store = self._empty(len(self.ids_N))
        self._born(self.rows_of(ids_C))
        self.store.load(self.rows_of(old), kept)

    def remove(self, ids_C: Tensor) -> None:
        """Removes clients with their data and everything they keep."""
        stay = (~torch.isin(self.ids_N, ids_C)).nonzero()[:, 0]
        kept = self.store.state(stay)
        self.data, self.ids_N = self.data.take(stay), self.ids_N[stay]
        self.store = self._empty(len(stay))
        self.store.load(torch.arange(len(stay)), kept)

    def rows_of(self, ids_C: Tensor) -> Tensor:
        """The places of clients in `ids_N`."""
        return torch.searchsorted(self.ids_N, ids_C.contiguous())

    def ask(self, request: Request) -> Answer:
        """Lets the clients with these ids answer, in chunks that fit the memory."""
        request, step, fold = request.to(self.ids_N.device), request.step, request.fold
        rows_C = self.rows_of(request.ids_C)
        scales = request.scales or Scales(len(request.ids_C))
        answer = Answer(Fold(scales) if fold else None, [], Meter(self.n_all))
        answer.meter.sent(request.download, len(rows_C))
        if step == "deliver":
            self.store.offer(request.download.public.shared)
        whole = self._whole_table()
        for number, (program, pick) in enumerate(self._chunks(rows_C, request)):
            if number and whole:  # the blocks of whole tables would stay between others
                release_heap()
            some, rows = request.take(pick), rows_C[pick]
            rng = Rng.of(self.seed, request.round, some.ids_C)
            kept, data = self.store.take(rows), self.data.take(rows)
            if self._in_one_pass(request, program):
                after, total = program.answer_total(some, kept, data, rng)
                if _finite(total.update, scales):
                    self.store.put(rows, after)
                    _meter_total(answer.meter, step, total)
                    assert answer.fold is not None
                    answer.fold.add_total(total)
                    continue  # else a client diverged: ask one by one, to leave out only that one
            kept, upload = program.answer(some, kept, data, rng)
            self.store.put(rows, kept)
            answer.meter.received(step, upload)
            upload = checked(upload, scales, answer.meter)
            answer.fold.add(upload) if answer.fold else answer.uploads.append(upload)
            del kept, upload, some, data
        return answer

    def _in_one_pass(self, request: Request, program: ClientProgram) -> bool:
        summed = request.fold and request.step == "train" and self.program.engine.one_pass
        return summed and program.can_sum()

    def _chunks(self, rows_C: Tensor, request: Request) -> Iterator[tuple[ClientProgram, Tensor]]:
        """Clients of like size with the same program and received tables, cut to fit the memory."""
        first = self.malicious.first if self.malicious else self.n_all
        bad_C = self.ids_N[rows_C] >= first
        kind_C = self.store.version_of(rows_C) * 2 + bad_C
        for kind in kind_C.unique():
            mine = (kind_C == kind).nonzero()[:, 0]
            program = self.malicious if self.malicious and bool(bad_C[mine[0]]) else self.program
            rows = rows_C[mine]
            lengths = self.data.training.items.lengths[rows]
            order = (lengths * (int(rows.max()) + 1) + rows).argsort()
            for pick in self._cut(mine[order], rows_C, request):
                yield program, pick

    def _cut(self, order: Tensor, rows_C: Tensor, request: Request) -> Iterator[Tensor]:
        """Chunks of the clients in this order; of a fixed size if the bits of sums depend on it."""
        if self._in_one_pass(request, self.program):
            yield from order.split(LARGEST_SUM)
            return
        if self.program.engine.chunk:
            yield from order.split(self.program.engine.chunk)
            return
        budget = self.program.engine.floats_per_chunk()
        yield from _by_budget(order, self._floats(rows_C[order], request.step), budget)

    def _floats(self, rows_C: Tensor, step: str) -> Tensor:
        """About how many numbers each client's answer holds."""
        n_items = self.program.catalogue.n_items
        lengths = self.data.training.items.lengths[rows_C]
        whole = not set(self.program.model.tables).isdisjoint(self.program.model.kept)
        made = any(m.implements("materialise") for m in self.program.mechanisms)
        if whole or made or self._whole_table():
            return torch.full_like(lengths, ROW * n_items)
        touched = lengths * EXAMPLES * ROW
        if step == "evaluate" and self.program.evaluate.candidates == "full":
            # A user vector may be computed from the list.
            return (RANKING + sum(getattr(self.program.model, "hidden", ()))) * n_items + touched
        return touched.clamp(min=LEAST, max=ROW * n_items + LEAST)

    def _whole_table(self) -> bool:
        program = self.program
        return program.objective.whole_table or any(m.whole_table for m in program.mechanisms)

    def private(self, ids_C: Tensor) -> Iterator[tuple[Tensor, FieldDict]]:
        """Clients that hold the same received tables form a group."""
        rows_C = self.rows_of(ids_C)
        version_C = self.store.version_of(rows_C)
        for version in version_C.unique():
            pick = (version_C == version).nonzero()[:, 0]
            yield pick, self.store.take(rows_C[pick])

    def state(self, ids_C: Tensor) -> Fields:
        """What some clients keep, and what attackers among them share, as flat tensors."""
        out = self.store.state(self.rows_of(ids_C))
        attackers = self.malicious and bool((ids_C >= self.malicious.first).any())
        return out | (self.malicious.memory.state() if self.malicious and attackers else {})

    def load(self, ids_C: Tensor, state: Fields) -> None:
        """Takes what `state` returned for these clients; other names are ignored."""
        state = {k: v.to(self.ids_N.device) for k, v in state.items()}
        self.store.load(self.rows_of(ids_C), state)
        shared = {k: v for k, v in state.items() if k.startswith("crew/")}
        if self.malicious and shared:
            self.malicious.memory.load(shared)


def _meter_total(meter: Meter, step: str, total: Total) -> None:
    """Each client would have sent its own rows; only their sum was computed here."""
    many = len(total.ids_C)
    for name, value in total.update.items():
        path = f"update/{name}"
        if name in total.touched:
            size = rows_bytes(path, many, int(total.touched[name].sum()), value[0])
        else:
            size = many * field_bytes(path, value[None])
        meter.count(step, path, size, total.ids_C)
    meter.envelope(many)


def _finite(fields: Fields, scales: Scales) -> bool:
    """Whether sums are in range; at once for all fields, since a GPU stops for every answer."""
    sizes = [v.abs().max() / scales.range_of(f"update/{k}") for k, v in fields.items()]
    return not fields or bool(torch.stack(sizes).max() <= scales.many)


def _by_budget(order: Tensor, floats: Tensor, budget: int) -> Iterator[Tensor]:
    """As many clients at a time as the budget holds, at least one."""
    sums = floats.cumsum(0)
    at = 0
    while at < len(order):
        spent = sums[at - 1] if at else torch.zeros_like(sums[0])
        end = max(int(torch.searchsorted(sums, spent + budget, right=True)), at + 1)
        yield order[at:end]
        at = end

"""All clients as rows of tensors on one machine; a chunk of a cohort is an index_select."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from covey.aggregate.fold import Fold
from covey.contract.fleet import Request
from covey.core.messages import Total, Upload
from covey.core.ragged import Field, FieldDict, Fields, cat, take
from covey.core.rng import Rng
from covey.engine.client.malicious import Malicious
from covey.engine.client.program import LocalData, Program

from .base import Clients
from .codec import field_bytes, rows_bytes
from .memory import limit_of, room
from .meter import Meter
from .store import Store
from .validation import finite_rows

LARGEST_SUM = 4096  # clients whose one-gradient updates are summed in one pass; fixed, so sums keep their order
BORN_AT_ONCE = 65_536  # clients whose start is drawn at a time

# About how many numbers the answer of a client holds, from which chunks are cut to fit the memory.
ROW = 64  # numbers of an item row
EXAMPLES = 5  # that an item of a list makes: itself and four negatives
LEAST = 4096  # numbers of a client with a short list: layers, and what mechanisms send
RANKING = 4  # numbers per item while a client ranks: its score, and what is made of it to rank


@dataclass
class SimulatedFleet:
    program: Program
    data: LocalData  # of clients 0..n-1
    seed: int = 0
    n_present: int = 0  # honest clients that have joined; 0: all
    malicious: Malicious | None = None  # the program of the clients after the honest ones
    hides: frozenset[str] = frozenset()
    store: Store = field(init=False)
    meter: Meter = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.data.training.items)
        self.n_present = self.n_present or self.n_honest
        self.store, self.meter = Store(n, limit_of(self.program.engine), self._sparse()), Meter(n)
        for ids_C in torch.arange(n, device=self.device).split(BORN_AT_ONCE):
            self.store.put(ids_C, self.program.birth(Rng.of(self.seed, 0, ids_C)))

    def _sparse(self) -> frozenset[str]:
        """Tables that clients keep, move in few rows and get back from the server, so that many hold the same.

        A GPU has the room, and holds them whole.
        """
        model = self.program.model
        own = set(model.tables).intersection(model.kept, model.uploaded)
        return frozenset() if self._whole_table() or self.device.type != "cpu" else frozenset(own)

    @property
    def device(self) -> torch.device:
        return self.data.training.items.values.device

    @property
    def n_honest(self) -> int:
        return self.malicious.first if self.malicious else len(self.data.training.items)

    @property
    def ids_N(self) -> Tensor:
        """Everybody the server knows of, attackers included."""
        everybody = torch.arange(len(self.data.training.items), device=self.device)
        return everybody[(everybody < self.n_present) | (everybody >= self.n_honest)]

    @classmethod
    def of(cls, clients: Clients) -> "SimulatedFleet":
        return cls(
            clients.program, clients.data, clients.seed, clients.n_present, clients.malicious
        )

    def join(self, ids_C: Tensor) -> None:
        self.n_present += len(ids_C)

    def private(self, ids_C: Tensor) -> Iterator[tuple[Tensor, FieldDict]]:
        """Clients that hold the same received tables form a group."""
        version_C = self.store.version_of(ids_C)
        for version in version_C.unique():
            pick = (version_C == version).nonzero()[:, 0]
            yield pick, self.store.take(ids_C[pick])

    def convert(self, change: Callable[[FieldDict], FieldDict]) -> None:
        self.store.dense = change(self.store.dense)

    def ask(self, request: Request) -> Upload | Total:
        step, round, fold = request.step, request.round, request.fold
        ids_C, download = request.ids_C.to(self.device), request.download.to(self.device)
        self.meter.sent(download, len(ids_C))
        if step == "deliver":
            self.store.offer(download.public.shared)
        sums, uploads = Fold(), []
        for program, pick in self._chunks(ids_C, step, fold):
            summing = fold and step == "train" and program.can_sum()
            ids, part = ids_C[pick], download.take(pick)
            kept, data, rng = (
                self.store.take(ids),
                self.data.take(ids),
                Rng.of(self.seed, round, ids),
            )
            if summing:
                after, total = program.answer_total(kept, data, part, ids, rng)
                if _finite(total.update):
                    self.store.put(ids, after)
                    self._meter_total(step, total)
                    sums.add_total(total)
                    continue  # else somebody diverged: ask one by one, to leave out nobody else
            kept, upload = program.answer(step, kept, data, part, ids, rng, round)
            self.store.put(ids, kept)
            self.meter.received(step, upload)
            upload = self._clean(upload)
            sums.add(upload) if fold else uploads.append(upload)
        if fold:
            total = sums.total()
            whole = len(total.ids_C) == len(ids_C)  # in the order asked
            return replace(
                total, ids_C=ids_C if whole else ids_C[torch.isin(ids_C, total.ids_C.to(ids_C))]
            )
        return (
            _join(uploads, ids_C, self.store.limit)
            if uploads
            else Upload(ids_C[:0], torch.zeros(0))
        )

    def _clean(self, upload: Upload) -> Upload:
        good = finite_rows(upload)
        if bool(good.all()):
            return upload
        self.meter.drop("not finite", int((~good).sum()))
        return upload.take(good.nonzero()[:, 0])

    def _order(self, ids_C: Tensor) -> Tensor:
        """Clients by the length of their lists, so that a chunk holds like sizes; ties by id."""
        lengths = self.data.training.items.lengths[ids_C]
        return (lengths * (int(ids_C.max()) + 1 if len(ids_C) else 1) + ids_C).argsort()

    def _chunks(
        self, ids_C: Tensor, step: str, fold: bool
    ) -> Iterator[tuple[Program | Malicious, Tensor]]:
        """Clients that run the same program and hold the same received tables, cut to fit the memory."""
        bad_C = ids_C >= self.n_honest
        kind_C = self.store.version_of(ids_C) * 2 + bad_C
        for kind in kind_C.unique():
            mine = (kind_C == kind).nonzero()[:, 0]
            program = self.malicious if self.malicious and bool(bad_C[mine[0]]) else self.program
            for pick in self._cut(mine[self._order(ids_C[mine])], ids_C, step, fold):
                yield program, pick

    def _cut(self, order: Tensor, ids_C: Tensor, step: str, fold: bool) -> Iterator[Tensor]:
        """Chunks of the clients in this order: of a fixed size where sums depend on it, else by the memory."""
        if fold and step == "train" and self.program.can_sum():
            yield from order.split(LARGEST_SUM)
            return
        if self.program.engine.chunk:
            yield from order.split(self.program.engine.chunk)
            return
        yield from _by_budget(
            order, self._floats(ids_C[order], step), self.program.engine.floats_per_chunk()
        )

    def _floats(self, ids_C: Tensor, step: str) -> Tensor:
        """About how many numbers each client's answer holds."""
        n_items = self.program.catalogue.n_items
        lengths = self.data.training.items.lengths[ids_C]
        whole = not set(self.program.model.tables).isdisjoint(self.program.model.kept)
        if whole or self._whole_table():
            return torch.full_like(lengths, ROW * n_items)
        touched = lengths * EXAMPLES * ROW
        if step == "evaluate" and self.program.evaluate.candidates == "full":
            hidden = sum(getattr(self.program.model, "hidden", ()))
            return (
                RANKING + hidden
            ) * n_items + touched  # a user vector may be computed from the list
        return touched.clamp(min=LEAST, max=ROW * n_items + LEAST)

    def _whole_table(self) -> bool:
        """Whether training moves every item row of a client."""
        program = self.program
        return program.objective.whole_table or any(m.whole_table for m in program.mechanisms)

    def _meter_total(self, step: str, total: Total) -> None:
        """Each client would have sent its own rows; only their sum was computed here."""
        many = len(total.ids_C)
        for name, value in total.update.items():
            path = f"update/{name}"
            if name in total.touched:
                size = rows_bytes(path, many, int(total.touched[name].sum()), value[0])
            else:
                size = many * field_bytes(path, value[None])
            self.meter.count(step, path, size, total.ids_C)
        self.meter.envelope(many)

    def state(self) -> Fields:
        crew = self.malicious.crew.state() if self.malicious else {}
        return {
            **self.store.state(),
            **self.meter.state(),
            **crew,
            "present": torch.tensor(self.n_present),
        }

    def load(self, state: Fields) -> None:
        self.store.load(
            {
                k: v.to(self.device)
                for k, v in state.items()
                if k.startswith(("dense/", "deltas/", "rows/", "version/"))
            }
        )
        self.meter.load({k: v for k, v in state.items() if k.startswith("meter/")})
        if self.malicious:
            self.malicious.crew.load(
                {k: v.to(self.device) for k, v in state.items() if k.startswith("crew/")}
            )
        self.n_present = int(state["present"])


def _finite(fields: Fields) -> bool:
    """Asked once for all: a GPU stops for every answer."""
    return not fields or bool(torch.stack([v.isfinite().all() for v in fields.values()]).all())


def _by_budget(order: Tensor, floats: Tensor, budget: int) -> Iterator[Tensor]:
    """As many clients at a time as the budget holds, at least one."""
    sums = floats.cumsum(0)
    at = 0
    while at < len(order):
        spent = sums[at - 1] if at else torch.zeros_like(sums[0])
        end = max(int(torch.searchsorted(sums, spent + budget, right=True)), at + 1)
        yield order[at:end]
        at = end


def _join(parts: list[Upload], ids_C: Tensor, limit: int) -> Upload:
    """One upload in the order the server asked in; who did not answer is left out. Empties the parts as it goes."""
    came = torch.cat([part.ids_C for part in parts])
    by_id = came.argsort()
    wanted = ids_C[torch.isin(ids_C, came)]
    pick = by_id[torch.searchsorted(came[by_id], wanted)]

    def whole(drawers: list[FieldDict]) -> FieldDict:
        return {k: _joined([d.pop(k) for d in drawers], pick, limit) for k in list(drawers[0])}

    update, model = whole([part.update for part in parts]), whole([part.model for part in parts])
    extra = {m: whole([part.extra[m] for part in parts]) for m in parts[0].extra}
    return Upload(wanted, torch.cat([part.weight_C for part in parts])[pick], update, model, extra)


def _joined(values: list[Any], pick: Tensor, limit: int) -> Field:
    """The same entries in another order; a part of a large table is let go as soon as it is copied."""
    if not isinstance(values[0], Tensor):
        return take(cat(values), pick)
    out = room((len(pick), *values[0].shape[1:]), values[0], limit)
    place = pick.argsort()
    while values:
        part = values.pop(0)
        out[place[: len(part)]] = part
        place = place[len(part) :]
    return out

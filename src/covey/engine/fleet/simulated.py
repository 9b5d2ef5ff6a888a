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
from covey.engine.client.program import ClientProgram

from .base import LocalFleet
from .codec import field_bytes, rows_bytes
from .memory import allocate, limit_of
from .store import Store
from .validation import finite_rows

LARGEST_SUM = 4096  # clients of one summed pass; fixed, so that sums keep their order
BORN_AT_ONCE = 65_536  # clients whose start is drawn at a time

# About how many numbers the answer of a client holds, from which chunks are cut to fit the memory.
ROW = 64  # numbers of an item row
EXAMPLES = 5  # that an item of a list makes: itself and four negatives
LEAST = 4096  # numbers of a client with a short list: layers, and what mechanisms send
RANKING = 4  # numbers per item while a client ranks: its score, and what is made of it to rank


@dataclass
class SimulatedFleet(LocalFleet):
    """The default fleet: a cohort is computed in chunks that fit the memory."""

    store: Store = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        n = len(self.data.training.items)
        self.store = Store(n, limit_of(self.program.engine), self._sparse())
        for ids_C in torch.arange(n, device=self.device).split(BORN_AT_ONCE):
            self.store.put(ids_C, self.program.birth(Rng.of(self.seed, 0, ids_C)))

    def _sparse(self) -> frozenset[str]:
        """Tables that clients keep, change in few rows and receive back, so that most are alike.

        They are stored as differences, except on a GPU, which holds them whole.
        """
        model = self.program.model
        own = set(model.tables).intersection(model.kept, model.uploaded)
        return frozenset() if self._whole_table() or self.device.type != "cpu" else frozenset(own)

    def private(self, ids_C: Tensor) -> Iterator[tuple[Tensor, FieldDict]]:
        """Clients that hold the same received tables form a group."""
        version_C = self.store.version_of(ids_C)
        for version in version_C.unique():
            pick = (version_C == version).nonzero()[:, 0]
            yield pick, self.store.take(ids_C[pick])

    def convert(self, change: Callable[[FieldDict], FieldDict]) -> None:
        self.store.dense = change(self.store.dense)

    def ask(self, request: Request) -> Upload | Total:
        request = request.to(self.device)
        ids_C, step, fold = request.ids_C, request.step, request.fold
        self.meter.sent(request.download, len(ids_C))
        if step == "deliver":
            self.store.offer(request.download.public.shared)
        sums, uploads = Fold(), []
        for program, pick in self._chunks(ids_C, step, fold):
            some = request.take(pick)
            ids, rng = some.ids_C, Rng.of(self.seed, request.round, some.ids_C)
            kept, data = self.store.take(ids), self.data.take(ids)
            if fold and step == "train" and program.can_sum():
                after, total = program.answer_total(some, kept, data, rng)
                if _finite(total.update):
                    self.store.put(ids, after)
                    self._meter_total(step, total)
                    sums.add_total(total)
                    continue  # else a client diverged: ask one by one, to leave out only that one
            kept, upload = program.answer(some, kept, data, rng)
            self.store.put(ids, kept)
            self.meter.received(step, upload)
            upload = self._clean(upload)
            sums.add(upload) if fold else uploads.append(upload)
        if fold:
            total = sums.total()
            whole = len(total.ids_C) == len(ids_C)
            in_order_C = ids_C if whole else ids_C[torch.isin(ids_C, total.ids_C.to(ids_C))]
            return replace(total, ids_C=in_order_C)
        if not uploads:
            return Upload(ids_C[:0], torch.zeros(0))
        return _join(uploads, ids_C, self.store.limit)

    def _clean(self, upload: Upload) -> Upload:
        good = finite_rows(upload)
        if bool(good.all()):
            return upload
        self.meter.drop("not finite", int((~good).sum()))
        return upload.take(good.nonzero()[:, 0])

    def _chunks(
        self, ids_C: Tensor, step: str, fold: bool
    ) -> Iterator[tuple[ClientProgram, Tensor]]:
        """Clients with the same program and the same received tables, cut to fit the memory.

        They are in the order of the length of their lists, then of their ids, so that the clients
        of a chunk have like sizes.
        """
        bad_C = ids_C >= self.n_honest
        kind_C = self.store.version_of(ids_C) * 2 + bad_C
        for kind in kind_C.unique():
            mine = (kind_C == kind).nonzero()[:, 0]
            program = self.malicious if self.malicious and bool(bad_C[mine[0]]) else self.program
            ids = ids_C[mine]
            order = (self.data.training.items.lengths[ids] * (int(ids.max()) + 1) + ids).argsort()
            for pick in self._cut(mine[order], ids_C, step, fold):
                yield program, pick

    def _cut(self, order: Tensor, ids_C: Tensor, step: str, fold: bool) -> Iterator[Tensor]:
        """Chunks of the clients in this order; of a fixed size if the bits of sums depend on it."""
        if fold and step == "train" and self.program.can_sum():
            yield from order.split(LARGEST_SUM)
            return
        if self.program.engine.chunk:
            yield from order.split(self.program.engine.chunk)
            return
        budget = self.program.engine.floats_per_chunk()
        yield from _by_budget(order, self._floats(ids_C[order], step), budget)

    def _floats(self, ids_C: Tensor, step: str) -> Tensor:
        """About how many numbers each client's answer holds."""
        n_items = self.program.catalogue.n_items
        lengths = self.data.training.items.lengths[ids_C]
        whole = not set(self.program.model.tables).isdisjoint(self.program.model.kept)
        if whole or self._whole_table():
            return torch.full_like(lengths, ROW * n_items)
        touched = lengths * EXAMPLES * ROW
        if step == "evaluate" and self.program.evaluate.candidates == "full":
            # A user vector may be computed from the list.
            return (RANKING + sum(getattr(self.program.model, "hidden", ()))) * n_items + touched
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
        return {**self.store.state(), **super().state()}

    def load(self, state: Fields) -> None:
        super().load(state)
        own = ("dense/", "deltas/", "rows/", "version/")
        self.store.load({k: v.to(self.device) for k, v in state.items() if k.startswith(own)})


def _finite(fields: Fields) -> bool:
    """Checked once for all fields, since a GPU stops for every answer."""
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
    """One upload in the order of `ids_C`, of the clients that answered. Empties the parts."""
    came = torch.cat([part.ids_C for part in parts])
    by_id = came.argsort()
    wanted = ids_C[torch.isin(ids_C, came)]
    pick = by_id[torch.searchsorted(came[by_id], wanted)]

    def whole(kinds: list[FieldDict]) -> FieldDict:
        return {k: _joined([d.pop(k) for d in kinds], pick, limit) for k in list(kinds[0])}

    update, model = whole([part.update for part in parts]), whole([part.model for part in parts])
    extra = {m: whole([part.extra[m] for part in parts]) for m in parts[0].extra}
    return Upload(wanted, torch.cat([part.weight_C for part in parts])[pick], update, model, extra)


def _joined(values: list[Any], pick: Tensor, limit: int) -> Field:
    """The same entries in another order; a part of a large table is freed once it is copied."""
    if not isinstance(values[0], Tensor):
        return take(cat(values), pick)
    out = allocate((len(pick), *values[0].shape[1:]), values[0], limit)
    place = pick.argsort()
    while values:
        part = values.pop(0)
        out[place[: len(part)]] = part
        place = place[len(part) :]
    return out

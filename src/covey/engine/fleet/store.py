"""The private state of simulated clients, by field.

Tensors are dense, [N, ...]. `Rows` are stored in the blocks in which they come, and item tables as
versions that many clients share, or as differences from such a version.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from covey.core import FieldDict, Fields, Ragged, Rows, below, cat

from .deltas import Deltas, joined
from .memory import allocate


@dataclass
class RowStore:
    """The latest `Rows` of each client, in the blocks in which they came, while these are used."""

    height: int  # of the table that the rows belong to
    block_N: Tensor  # number of each client's block; -1: nothing yet
    place_N: Tensor  # place of each client in its block
    nothing: Tensor  # [0, D]
    blocks: dict[int, Rows] = field(default_factory=dict)
    users: dict[int, int] = field(default_factory=dict)  # clients with their latest rows in a block
    count: int = 0  # blocks so far

    @classmethod
    def empty(cls, n: int, like: Rows) -> "RowStore":
        none = torch.full((n,), -1, dtype=torch.int64, device=like.values.device)
        return cls(like.height, none, none.clone(), like.values[:0])

    def put(self, ids_C: Tensor, rows: Rows) -> None:
        old, many = self.block_N[ids_C].unique(return_counts=True)
        for block, gone in zip(old.tolist(), many.tolist(), strict=True):
            if block >= 0:
                self.users[block] -= gone
                if not self.users[block]:
                    del self.users[block], self.blocks[block]
        self.blocks[self.count], self.users[self.count] = rows, len(ids_C)
        self.block_N[ids_C] = self.count
        self.place_N[ids_C] = torch.arange(len(ids_C), device=ids_C.device)
        self.count += 1

    def take(self, ids_C: Tensor) -> Rows:
        block_C, place_C = self.block_N[ids_C], self.place_N[ids_C]
        kinds = block_C.unique().tolist()
        if len(kinds) == 1 and kinds[0] >= 0 and len(self.blocks[kinds[0]]) == len(ids_C):
            block = self.blocks[kinds[0]]
            if bool((place_C.diff() == 1).all()):
                return block  # these clients, in the same order
        order = [(block_C == kind).nonzero()[:, 0] for kind in kinds]
        parts = [
            self.blocks[kind].take(place_C[mine]) if kind >= 0 else self._none(len(mine))
            for kind, mine in zip(kinds, order, strict=True)
        ]
        joined: Rows = cat(parts) if parts else self._none(0)
        return joined.take(torch.cat(order).argsort()) if len(parts) > 1 else joined

    def _none(self, many: int) -> Rows:
        offsets = torch.zeros(many + 1, dtype=torch.int64, device=self.nothing.device)
        return Rows(Ragged(offsets[:0], offsets), self.nothing, self.height)


@dataclass
class Received:
    """Tables as clients last received them. Many share one, so each version is held once."""

    version_N: Tensor  # -1: none yet
    tables: dict[int, Tensor] = field(default_factory=dict)  # [1, ...] each
    latest: int = -1

    def put(self, ids_C: Tensor, table: Tensor) -> None:
        known = self.tables.get(self.latest)
        if known is None or not (known.data_ptr() == table.data_ptr() or torch.equal(known, table)):
            self.latest += 1
            self.tables[self.latest] = table
        self.version_N[ids_C] = self.latest
        used = set(self.version_N.unique().tolist())
        self.tables = {k: v for k, v in self.tables.items() if k in used}

    def take(self, ids_C: Tensor) -> Tensor | None:
        """The table [1, ...] that these clients hold; None if they hold none."""
        versions = self.version_N[ids_C].unique().tolist()
        if len(versions) != 1:
            raise ValueError("clients with different received tables must be asked separately")
        return self.tables.get(versions[0])

    def state(self, ids_C: Tensor) -> Fields:
        """Flat tensors: the versions that some clients hold, and their tables."""
        used = self.version_N[ids_C].unique().tolist()
        tables = {f"/{k}": self.tables[k] for k in used if k in self.tables}
        return {"": self.version_N[ids_C], **tables}

    def load(self, ids_C: Tensor, version_C: Tensor, tables: Fields) -> None:
        """Takes the tables that some clients hold; equal ones are held once."""
        number = joined(self.tables, self.latest, tables)
        self.latest = max(self.tables, default=-1)
        mine_C = [number[v] for v in version_C.tolist()]
        self.version_N[ids_C] = torch.tensor(mine_C, device=version_C.device)


@dataclass
class Store:
    """Private state of clients 0..n-1, by field."""

    n: int
    limit: int = 1 << 62  # bytes beyond which a dense field is kept in a file
    sparse: frozenset[str] = frozenset()  # tables of which clients change few rows
    deltas: dict[str, Deltas] = field(default_factory=dict)  # those tables
    dense: Fields = field(default_factory=dict)  # [N, ...]
    rows: dict[str, RowStore] = field(default_factory=dict)
    received: dict[str, Received] = field(default_factory=dict)  # named "received/..."

    def take(self, ids_C: Tensor) -> FieldDict:
        tables = {k: r.take(ids_C) for k, r in self.received.items()} if len(ids_C) else {}
        return {
            **{k: v[ids_C] for k, v in self.dense.items()},
            **{k: d.take(ids_C) for k, d in self.deltas.items()},
            **{k: s.take(ids_C) for k, s in self.rows.items()},
            **{k: v for k, v in tables.items() if v is not None},
        }

    def version_of(self, ids_C: Tensor) -> Tensor:
        """Clients with equal numbers may be asked together."""
        out = torch.zeros_like(ids_C)
        for r in self.received.values():
            out = out * (r.latest + 2) + r.version_N[ids_C] + 1
        return out

    def put(self, ids_C: Tensor, kept: FieldDict) -> None:
        for name, value in kept.items():
            if name.startswith("received/") and isinstance(value, Tensor):
                none = torch.full((self.n,), -1, dtype=torch.int64, device=value.device)
                self.received.setdefault(name, Received(none)).put(ids_C, value)
            elif isinstance(value, Rows):
                self.rows.setdefault(name, RowStore.empty(self.n, value)).put(ids_C, value)
            elif isinstance(value, Tensor) and name in self.sparse:
                self.deltas.setdefault(name, Deltas.empty(self.n)).put(ids_C, value)
            elif isinstance(value, Tensor):
                if name not in self.dense:
                    shape = (self.n, *value.shape[1:])
                    self.dense[name] = allocate(shape, value, self.limit, zero=True)
                self.dense[name][ids_C] = value

    def offer(self, tables: FieldDict) -> None:
        """Prepares for tables that are about to be handed to several clients."""
        for name in self.sparse.intersection(tables):
            self.deltas.setdefault(name, Deltas.empty(self.n)).offer(tables[name])

    def state(self, ids_C: Tensor) -> Fields:
        """What some clients keep as flat tensors, for a checkpoint."""
        out = {f"dense/{k}": v[ids_C] for k, v in self.dense.items()}
        for name, d in self.deltas.items():
            out |= {f"deltas/{name}/{k}": v for k, v in d.state(ids_C).items()}
        for name, store in self.rows.items():
            live = store.take(ids_C)
            parts = {"items": live.items.values, "offsets": live.items.offsets}
            parts |= {"values": live.values, "height": torch.tensor(store.height)}
            out |= {f"rows/{name}/{k}": v for k, v in parts.items()}
        for name, r in self.received.items():
            out |= {f"version/{name}{k}": v for k, v in r.state(ids_C).items()}
        return out

    def load(self, ids_C: Tensor, state: Fields) -> None:
        """Takes what some clients keep from what `state` returned for as many clients."""
        for path in (k for k in state if k.startswith("version/received/")):
            head, _, last = path.rpartition("/")
            if not last.isdigit():
                none = torch.full((self.n,), -1, dtype=torch.int64, device=ids_C.device)
                received = self.received.setdefault(path.removeprefix("version/"), Received(none))
                received.load(ids_C, state[path], below(state, f"{path}/"))
        for name in self.sparse:
            if part := below(state, f"deltas/{name}/"):
                self.deltas.setdefault(name, Deltas.empty(self.n)).load(ids_C, part)
        self.put(ids_C, below(state, "dense/"))
        for path in sorted(k for k in state if k.startswith("rows/") and k.endswith("/height")):
            head = path.removesuffix("/height")
            items = Ragged(state[f"{head}/items"], state[f"{head}/offsets"])
            rows = Rows(items, state[f"{head}/values"], int(state[path]))
            self.put(ids_C, {head.removeprefix("rows/"): rows})

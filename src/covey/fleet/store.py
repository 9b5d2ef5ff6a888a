"""The private state of simulated clients: dense rows where all have the same shape, a growing list else."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..core import Drawer, Fields, Ragged, Rows, offsets_of


@dataclass
class RowStore:
    """The latest `Rows` of each client in one flat buffer; old ones are squeezed out when they pile up."""

    height: int
    start_N: Tensor
    length_N: Tensor
    items: Tensor
    values: Tensor
    used: int = 0

    @classmethod
    def empty(cls, n: int, like: Rows) -> "RowStore":
        zeros = torch.zeros(n, dtype=torch.int64, device=like.values.device)
        return cls(like.height, zeros, zeros.clone(), like.items.values[:0], like.values[:0])

    def take(self, ids_C: Tensor) -> Rows:
        lengths, offsets = self.length_N[ids_C], offsets_of(self.length_N[ids_C])
        shift = (self.start_N[ids_C] - offsets[:-1]).repeat_interleave(lengths)
        flat = torch.arange(int(offsets[-1]), device=shift.device) + shift
        return Rows(Ragged(self.items[flat], offsets), self.values[flat], self.height)

    def put(self, ids_C: Tensor, rows: Rows) -> None:
        need = self.used + len(rows.values)
        if need > len(self.values):
            self._grow(max(need, 2 * int(self.length_N.sum()) + len(rows.values)))
        at = self.used
        self.items[at : at + len(rows.values)] = rows.items.values
        self.values[at : at + len(rows.values)] = rows.values
        self.start_N[ids_C] = at + rows.items.offsets[:-1]
        self.length_N[ids_C] = rows.items.lengths
        self.used = at + len(rows.values)

    def _grow(self, size: int) -> None:
        everybody = torch.arange(len(self.start_N), device=self.start_N.device)
        live = self.take(everybody)
        count = len(live.values)
        size = max(size - self.used + count, count)
        self.items = torch.empty(size, dtype=live.items.values.dtype, device=live.values.device)
        self.values = torch.empty(size, *live.values.shape[1:], dtype=live.values.dtype, device=live.values.device)
        self.items[:count], self.values[:count] = live.items.values, live.values
        self.start_N, self.used = live.items.offsets[:-1].clone(), count


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
        """[1, ...] where these clients hold the same version, None where they hold none."""
        versions = self.version_N[ids_C].unique().tolist()
        if len(versions) != 1:
            raise ValueError("clients with different received tables must be asked apart")
        return self.tables.get(versions[0])


@dataclass
class Store:
    """Private state of clients 0..n-1 by field; fields named "received/..." are shared by many clients."""

    n: int
    dense: Fields = field(default_factory=dict)  # [N, ...]
    rows: dict[str, RowStore] = field(default_factory=dict)
    received: dict[str, Received] = field(default_factory=dict)

    def take(self, ids_C: Tensor) -> Drawer:
        tables = {k: r.take(ids_C) for k, r in self.received.items()} if len(ids_C) else {}
        return {
            **{k: v[ids_C] for k, v in self.dense.items()},
            **{k: s.take(ids_C) for k, s in self.rows.items()},
            **{k: v for k, v in tables.items() if v is not None},
        }

    def version_of(self, ids_C: Tensor) -> Tensor:
        """Clients with equal numbers may be asked together."""
        out = torch.zeros_like(ids_C)
        for r in self.received.values():
            out = out * (r.latest + 2) + r.version_N[ids_C] + 1
        return out

    def put(self, ids_C: Tensor, kept: Drawer) -> None:
        for name, value in kept.items():
            if name.startswith("received/") and isinstance(value, Tensor):
                none = torch.full((self.n,), -1, dtype=torch.int64, device=value.device)
                self.received.setdefault(name, Received(none)).put(ids_C, value)
            elif isinstance(value, Rows):
                self.rows.setdefault(name, RowStore.empty(self.n, value)).put(ids_C, value)
            elif isinstance(value, Tensor):
                if name not in self.dense:
                    self.dense[name] = torch.zeros(self.n, *value.shape[1:], dtype=value.dtype, device=value.device)
                self.dense[name][ids_C] = value

    def state(self) -> Fields:
        """Flat tensors for a checkpoint."""
        out = {f"dense/{k}": v for k, v in self.dense.items()}
        for name, store in self.rows.items():
            live = store.take(torch.arange(self.n, device=store.values.device))
            out |= {
                f"rows/{name}/items": live.items.values,
                f"rows/{name}/offsets": live.items.offsets,
                f"rows/{name}/values": live.values,
                f"rows/{name}/height": torch.tensor(store.height),
            }
        for name, r in self.received.items():
            out[f"version/{name}"] = r.version_N
            out |= {f"version/{name}/{k}": v for k, v in r.tables.items()}
        return out

    def load(self, state: Fields) -> None:
        self.received = {}
        for name in [k.removeprefix("version/") for k, v in state.items() if k.startswith("version/received/")]:
            head, _, last = name.rpartition("/")
            if last.isdigit():
                at = self.received.setdefault(head, Received(state[f"version/{head}"].clone()))
                at.tables[int(last)] = state[f"version/{name}"]
                at.latest = max(at.latest, int(last))
        self.dense = {k.removeprefix("dense/"): v for k, v in state.items() if k.startswith("dense/")}
        self.rows = {}
        names = {k.removeprefix("rows/").removesuffix("/items") for k in state if k.endswith("/items")}
        for name in sorted(n for n in names if f"rows/{n}/height" in state):
            part = {k: state[f"rows/{name}/{k}"] for k in ("items", "offsets", "values", "height")}
            rows = Rows(Ragged(part["items"], part["offsets"]), part["values"], int(part["height"]))
            self.put(torch.arange(self.n, device=rows.values.device), {name: rows})

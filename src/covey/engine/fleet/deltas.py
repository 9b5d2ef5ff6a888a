"""Item tables as a common base and the rows of each client whose bits differ from the base's."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from covey.core import Fields, below, offsets_of


@dataclass
class Deltas:
    """The tables of clients 0..n-1, on the CPU. A base is dropped when no client refers to it."""

    version_N: Tensor  # of each client's base; -1: no table yet
    bases: dict[int, Tensor] = field(default_factory=dict)  # by version, [I, D] each
    latest: int = -1
    own: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)  # client: items [R], [R, D]

    @classmethod
    def empty(cls, n: int) -> "Deltas":
        return cls(torch.full((n,), -1, dtype=torch.int64))

    def offer(self, table_ID: Tensor) -> None:
        """Makes a base of a table that is about to be handed to several clients."""
        known = self.bases.get(self.latest)
        if known is None or not torch.equal(bits(known), bits(table_ID)):
            self.latest += 1
            self.bases[self.latest] = table_ID.clone()

    def put(self, ids_C: Tensor, table_CID: Tensor) -> None:
        if self.latest < 0 and len(table_CID):
            self.offer(table_CID[0])
        for client, table_ID in zip(ids_C.tolist(), table_CID):
            version = int(self.version_N[client])
            handed = torch.equal(bits(table_ID), bits(self.bases[self.latest]))
            version = self.latest if handed or version < 0 else version
            items = (bits(table_ID) != bits(self.bases[version])).any(1).nonzero()[:, 0]
            self.version_N[client] = version
            self.own[client] = items.to(torch.int32), table_ID.index_select(0, items)
        used = {self.latest, *self.version_N.unique().tolist()}
        self.bases = {k: v for k, v in self.bases.items() if k in used}

    def take(self, ids_C: Tensor) -> Tensor:
        """[C, I, D]; zeros for clients that have no table yet."""
        like = self.bases[self.latest]
        out_CID = like.new_empty(len(ids_C), *like.shape)
        for client, out_ID in zip(ids_C.tolist(), out_CID):
            base = self.bases.get(int(self.version_N[client]))
            if base is None:
                out_ID.zero_()
                continue
            items, rows = self.own[client]
            out_ID.copy_(base).index_copy_(0, items.long(), rows)
        return out_CID

    def bytes(self) -> int:
        """The memory that the tables take."""
        tensors = [*self.bases.values(), *(t for pair in self.own.values() for t in pair)]
        return sum(t.numel() * t.element_size() for t in tensors)

    def state(self, ids_C: Tensor) -> Fields:
        """The tables of some clients as flat tensors, for a checkpoint."""
        used = sorted({*self.version_N[ids_C].unique().tolist()} - {-1})
        like = self.bases[self.latest]
        held = [(place, self.own[c]) for place, c in enumerate(ids_C.tolist()) if c in self.own]
        pairs = [pair for _, pair in held] or [(like.new_empty(0, dtype=torch.int32), like[:0])]
        lengths = torch.tensor([len(pair[0]) for _, pair in held], dtype=torch.int64)
        return {
            "version": self.version_N[ids_C],
            "clients": torch.tensor([place for place, _ in held], dtype=torch.int64),
            "offsets": offsets_of(lengths),
            "items": torch.cat([items for items, _ in pairs]),
            "rows": torch.cat([rows for _, rows in pairs]),
            **{f"base/{k}": self.bases[k] for k in {*used, self.latest}},
        }

    def load(self, ids_C: Tensor, state: Fields) -> None:
        """Takes the tables of some clients from what `state` returned for as many."""
        number = joined(self.bases, self.latest, below(state, "base/"))
        self.latest = number[max(number)]  # the latest base stays the latest
        self.version_N[ids_C] = torch.tensor([number[v] for v in state["version"].tolist()])
        cuts = state["offsets"].diff().tolist()
        items, rows = state["items"].split(cuts), state["rows"].split(cuts)
        clients = ids_C[state["clients"]].tolist()
        self.own |= {c: (i.clone(), r.clone()) for c, i, r in zip(clients, items, rows)}


def joined(known: dict[int, Tensor], latest: int, tables: Fields) -> dict[int, int]:
    """Adds tables to known ones, equal ones once; returns their new numbers by the old ones."""
    number = {-1: -1}
    for old in sorted(map(int, tables)):
        table = tables[str(old)]
        alike = (k for k, v in known.items() if torch.equal(bits(v), bits(table)))
        number[old] = next(alike, max([latest, *known]) + 1)
        known.setdefault(number[old], table)
    return number


def bits(x_ID: Tensor) -> Tensor:
    """As integers, 64-bit ones if they fit: zeros differ by sign, and NaN equals itself."""
    wide = x_ID.shape[-1] * x_ID.element_size() % 8 == 0
    return x_ID.view(torch.int64 if wide else torch.int32)

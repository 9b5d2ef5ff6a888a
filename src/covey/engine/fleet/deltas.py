"""Item tables of which clients move few rows: a base that many of them received, and each client's own rows.

What is held is exact: a row is a client's own where its bits differ from the base's.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from covey.core.ragged import Fields, offsets_of


@dataclass
class Deltas:
    """The tables of clients 0..n-1, on the CPU. A base goes when it is nobody's."""

    version_N: Tensor  # of the base; -1: no table yet
    bases: dict[int, Tensor] = field(default_factory=dict)  # [I, D] each
    latest: int = -1
    own: dict[int, tuple[Tensor, Tensor]] = field(
        default_factory=dict
    )  # client -> items [R], rows [R, D]

    @classmethod
    def empty(cls, n: int) -> "Deltas":
        return cls(torch.full((n,), -1, dtype=torch.int64))

    def offer(self, table_ID: Tensor) -> None:
        """A table about to be handed to several clients, so that they may hold it as one."""
        known = self.bases.get(self.latest)
        if known is None or not torch.equal(_bits(known), _bits(table_ID)):
            self.latest += 1
            self.bases[self.latest] = table_ID.clone()

    def put(self, ids_C: Tensor, table_CID: Tensor) -> None:
        if self.latest < 0 and len(table_CID):
            self.offer(table_CID[0])
        for client, table_ID in zip(ids_C.tolist(), table_CID):
            version, items = self._based(table_ID, int(self.version_N[client]))
            self.version_N[client] = version
            self.own[client] = items.to(torch.int32), table_ID.index_select(0, items)
        used = {self.latest, *self.version_N.unique().tolist()}
        self.bases = {k: v for k, v in self.bases.items() if k in used}

    def _based(self, table_ID: Tensor, version: int) -> tuple[int, Tensor]:
        """A base and the items whose rows are not its own; who was handed the latest table begins anew from it."""
        handed = torch.equal(_bits(table_ID), _bits(self.bases[self.latest]))
        version = self.latest if handed or version < 0 else version
        return version, self._differ(table_ID, version)

    def _differ(self, table_ID: Tensor, version: int) -> Tensor:
        return (_bits(table_ID) != _bits(self.bases[version])).any(1).nonzero()[:, 0]

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
        """What is held."""
        sizes = lambda tensors: sum(t.numel() * t.element_size() for t in tensors)
        return sizes(self.bases.values()) + sum(sizes(pair) for pair in self.own.values())

    def state(self) -> Fields:
        """Flat tensors for a checkpoint."""
        clients = sorted(self.own)
        like = self.bases[self.latest]
        pairs = [self.own[client] for client in clients] or [
            (like.new_empty(0, dtype=torch.int32), like[:0])
        ]
        lengths = torch.tensor([len(self.own[client][0]) for client in clients], dtype=torch.int64)
        return {
            "version": self.version_N,
            "clients": torch.tensor(clients, dtype=torch.int64),
            "offsets": offsets_of(lengths),
            "items": torch.cat([items for items, _ in pairs]),
            "rows": torch.cat([rows for _, rows in pairs]),
            **{f"base/{k}": v for k, v in self.bases.items()},
        }

    @classmethod
    def of(cls, state: Fields) -> "Deltas":
        bases = {int(k.removeprefix("base/")): v for k, v in state.items() if k.startswith("base/")}
        cuts = state["offsets"].diff().tolist()
        parts = zip(
            state["clients"].tolist(), state["items"].split(cuts), state["rows"].split(cuts)
        )
        own = {client: (items.clone(), rows.clone()) for client, items, rows in parts}
        return cls(state["version"].clone(), bases, max(bases), own)


def _bits(x_ID: Tensor) -> Tensor:
    """As whole numbers, long ones where they fit: zeros keep their sign, and what is not a number equals itself."""
    wide = x_ID.shape[-1] * x_ID.element_size() % 8 == 0
    return x_ID.view(torch.int64 if wide else torch.int32)

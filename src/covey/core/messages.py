"""The records that a round passes between server and clients, as plain frozen data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from covey.core.ragged import Field, FieldDict, Fields, cat, take


@dataclass(frozen=True)
class Round:
    """One round and its clients."""

    number: int  # 0 is the enrolment
    ids_C: Tensor
    opens_epoch: bool = True  # an epoch is one pass over all clients, in one or more rounds
    closes_epoch: bool = True


@dataclass(frozen=True)
class Catalogue:
    """What the server and all clients know about the items."""

    n_items: int
    titles: tuple[str, ...] = ()
    popularity_I: Tensor | None = None  # counts in the training data, where a method may know them


@dataclass(frozen=True)
class Sent:
    """Fields that go to clients: `shared` is the same for all, `each` has one entry per client."""

    shared: FieldDict = field(default_factory=dict)
    each: FieldDict = field(default_factory=dict)

    def take(self, pick: Tensor) -> "Sent":
        return Sent(self.shared, {k: take(v, pick) for k, v in self.each.items()})

    def to(self, device: torch.device | str) -> "Sent":
        shared, each = ({k: v.to(device) for k, v in d.items()} for d in (self.shared, self.each))
        return Sent(shared, each)


Extra = dict[str, Sent]  # by mechanism


@dataclass(frozen=True)
class Download:
    """All that goes to clients in one exchange."""

    public: Sent = field(default_factory=Sent)  # parameters
    extra: Extra = field(default_factory=dict)  # fields by mechanism

    def take(self, pick: Tensor) -> "Download":
        return Download(self.public.take(pick), {k: s.take(pick) for k, s in self.extra.items()})

    def to(self, device: torch.device | str) -> "Download":
        return Download(self.public.to(device), {k: s.to(device) for k, s in self.extra.items()})


@dataclass(frozen=True)
class Upload:
    """The answers of clients, one entry per client. Everything in it is a disclosure."""

    ids_C: Tensor
    weight_C: Tensor  # how much the client's update counts
    update: FieldDict = field(default_factory=dict)  # accumulated steps on what was sent
    model: FieldDict = field(default_factory=dict)  # parameters that are uploaded as they are
    extra: dict[str, FieldDict] = field(default_factory=dict)  # fields by mechanism

    def __len__(self) -> int:
        return len(self.ids_C)

    def take(self, pick: Tensor) -> "Upload":
        return self.map(lambda x: take(x, pick))

    def to(self, device: torch.device | str) -> "Upload":
        return self.map(lambda x: x.to(device))

    def fields(self) -> list[tuple[str, Field]]:
        """Every field by its path, such as "update/items" or "list/items"; last the weight."""
        kinds = [("update", self.update), ("model", self.model), *self.extra.items()]
        fields = [(f"{kind}/{k}", v) for kind, named in kinds for k, v in named.items()]
        return [*fields, ("weight", self.weight_C)]

    def map(self, f: Callable[..., Any], *others: "Upload") -> "Upload":
        """Applies `f` to every field, with the same field of `others` as further arguments."""
        ups = (self, *others)
        return Upload(
            f(*(u.ids_C for u in ups)),
            f(*(u.weight_C for u in ups)),
            {k: f(*(u.update[k] for u in ups)) for k in self.update},
            {k: f(*(u.model[k] for u in ups)) for k in self.model},
            {m: {k: f(*(u.extra[m][k] for u in ups)) for k in d} for m, d in self.extra.items()},
        )


@dataclass(frozen=True)
class Total:
    """Sums over clients, for a server that may see nothing else or needs nothing else."""

    ids_C: Tensor  # the clients in the sums
    weight: Tensor  # the sum of their weights
    update: Fields = field(default_factory=dict)  # weighted sums of the updates, dense
    model: Fields = field(default_factory=dict)  # weighted sums of the uploaded parameters, dense
    touched: Fields = field(default_factory=dict)  # by table, the weight on each row, [I]
    extra: dict[str, Fields] = field(default_factory=dict)  # plain sums of the fields of mechanisms

    def __len__(self) -> int:
        return len(self.ids_C)


Answers = Upload | Total  # of clients: those of each, or only their sum


def stack(uploads: Sequence[Upload]) -> Upload:
    """Joins uploads of different clients, in order."""
    return uploads[0].map(lambda *xs: cat(xs), *uploads[1:])

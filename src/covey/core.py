"""The records that flow through a round. Plain frozen data; nothing here trains.

Shape suffixes, used everywhere: C = clients of a cohort, N = all clients, I = items of the
catalogue, R = rows of a client's local item table, L = examples of a client, D = embedding,
T = flat rows of all clients together. Every tensor on the client side has a leading C; a
single device is a cohort of one.
"""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from .errors import CoveyError as CoveyError


def positive(section: str, **options: float) -> None:
    """Says which option of a section is not over 0, where one is not."""
    for name, value in options.items():
        if not value > 0:
            least = "at least 1 is needed" if isinstance(value, int) else "it must be over 0"
            raise CoveyError(f"{section}: {name} = {value}; {least}")


def among_choices(section: str, part: object) -> None:
    """Says which option of a part is none of its choices. Files are checked anyway; this is for Python."""
    for name, hint in get_type_hints(type(part)).items():
        value, valid = getattr(part, name), [str(choice) for choice in get_args(hint)]
        if get_origin(hint) is Literal and value not in get_args(hint):
            near = difflib.get_close_matches(str(value), valid, n=1)
            meant = f"did you mean '{near[0]}'? " if near else ""
            raise CoveyError(f"{section}: {name} = {value!r}; {meant}valid are {', '.join(valid)}")


@dataclass(frozen=True)
class Ragged:
    """One list per client, laid end to end: client c owns values[offsets[c] : offsets[c + 1]]."""

    values: Tensor  # [T, ...]
    offsets: Tensor  # [C + 1], int64, starts at 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> Tensor:
        return self.offsets.diff()

    @property
    def owner(self) -> Tensor:
        """Row of the client that each value belongs to, [T]."""
        return torch.repeat_interleave(self.lengths, output_size=len(self.values))

    @property
    def place(self) -> Tensor:
        """Position of each value inside its own list, [T]."""
        start = self.offsets[:-1].repeat_interleave(self.lengths, output_size=len(self.values))
        return torch.arange(len(self.values), device=self.values.device) - start

    def where(self, pick: Tensor) -> "Ragged":
        """Where the values of some clients stand in the flat list."""
        lengths = self.lengths[pick]
        offsets = offsets_of(lengths)
        total = int(offsets[-1])
        shift = (self.offsets[:-1][pick] - offsets[:-1]).repeat_interleave(lengths, output_size=total)
        return Ragged(torch.arange(total, device=shift.device) + shift, offsets)

    def take(self, pick: Tensor) -> "Ragged":
        at = self.where(pick)
        return at.like(self.values[at.values])

    def like(self, values: Tensor) -> "Ragged":
        return Ragged(values, self.offsets)

    def padded(self, width: int | None = None, fill: float | int | bool = 0) -> Tensor:
        width = int(self.lengths.max()) if width is None and len(self) else (width or 0)
        out = self.values.new_full((len(self), width, *self.values.shape[1:]), fill)
        out[self.owner, self.place] = self.values
        return out

    def mask(self, width: int) -> Tensor:
        return torch.arange(width, device=self.offsets.device) < self.lengths[:, None]

    def to(self, device: torch.device | str) -> "Ragged":
        return Ragged(self.values.to(device), self.offsets.to(device))

    @staticmethod
    def of(lists: Sequence[Sequence[int]], dtype: torch.dtype = torch.int64) -> "Ragged":
        flat = [x for one in lists for x in one]
        return Ragged(torch.tensor(flat, dtype=dtype), offsets_of(torch.tensor([len(x) for x in lists])))

    @staticmethod
    def cat(parts: Sequence["Ragged"]) -> "Ragged":
        return Ragged(torch.cat([p.values for p in parts]), offsets_of(torch.cat([p.lengths for p in parts])))


def offsets_of(lengths: Tensor) -> Tensor:
    return torch.nn.functional.pad(lengths.long().cumsum(0), (1, 0))


@dataclass(frozen=True)
class Rows:
    """Some rows of an [I, ...] table for each client; an item stands at most once per client."""

    items: Ragged  # which rows
    values: Tensor  # [T, ...], aligned with items.values
    height: int  # I

    def __len__(self) -> int:
        return len(self.items)

    def take(self, pick: Tensor) -> "Rows":
        index = self.items.where(pick)
        return Rows(index.like(self.items.values[index.values]), self.values[index.values], self.height)

    def scaled(self, s_C: Tensor) -> "Rows":
        s_T = s_C.repeat_interleave(self.items.lengths)
        return replace(self, values=self.values * s_T.view(-1, *[1] * (self.values.dim() - 1)).to(self.values))

    def dense(self) -> Tensor:
        """[C, I, ...]; for small cohorts and for rules that need whole uploads."""
        out = self.values.new_zeros(len(self), self.height, *self.values.shape[1:])
        out[self.items.owner, self.items.values] = self.values
        return out

    def to(self, device: torch.device | str) -> "Rows":
        return Rows(self.items.to(device), self.values.to(device), self.height)


Field = Tensor | Ragged | Rows
Fields = dict[str, Tensor]
Drawer = dict[str, Any]  # of `Field`s: whoever owns the drawer knows which kind is where


@dataclass(frozen=True)
class Round:
    number: int  # 0 is the enrolment
    ids_C: Tensor
    opens_epoch: bool = True  # an epoch is one pass over all clients, in one or more rounds
    closes_epoch: bool = True


@dataclass(frozen=True)
class Catalogue:
    """What everybody knows about the items."""

    n_items: int
    titles: tuple[str, ...] = ()
    popularity_I: Tensor | None = None  # counts in the training data, where a method may know them


@dataclass(frozen=True)
class Sent:
    """What goes to clients: the same for all of them, or one entry each."""

    shared: Drawer = field(default_factory=dict)
    each: Drawer = field(default_factory=dict)

    def take(self, pick: Tensor) -> "Sent":
        return Sent(self.shared, {k: take(v, pick) for k, v in self.each.items()})

    def to(self, device: torch.device | str) -> "Sent":
        return Sent({k: v.to(device) for k, v in self.shared.items()}, {k: v.to(device) for k, v in self.each.items()})


@dataclass(frozen=True)
class Download:
    public: Sent = field(default_factory=Sent)  # parameters
    extra: dict[str, Sent] = field(default_factory=dict)  # one drawer per mechanism

    def take(self, pick: Tensor) -> "Download":
        return Download(self.public.take(pick), {k: s.take(pick) for k, s in self.extra.items()})

    def to(self, device: torch.device | str) -> "Download":
        return Download(self.public.to(device), {k: s.to(device) for k, s in self.extra.items()})


@dataclass(frozen=True)
class Upload:
    """What clients answer, one entry per client. Everything in it is a disclosure."""

    ids_C: Tensor
    weight_C: Tensor  # how much the client's update counts
    update: Drawer = field(default_factory=dict)  # accumulated steps on what was sent
    model: Drawer = field(default_factory=dict)  # parameters that are uploaded as they are
    extra: dict[str, Drawer] = field(default_factory=dict)  # one drawer per mechanism

    def __len__(self) -> int:
        return len(self.ids_C)

    def take(self, pick: Tensor) -> "Upload":
        return self.map(lambda x: take(x, pick))

    def to(self, device: torch.device | str) -> "Upload":
        return self.map(lambda x: x.to(device))

    def map(self, f: Callable[..., Any], *others: "Upload") -> "Upload":
        ups = (self, *others)
        return Upload(
            f(*(u.ids_C for u in ups)),
            f(*(u.weight_C for u in ups)),
            {k: f(*(u.update[k] for u in ups)) for k in self.update},
            {k: f(*(u.model[k] for u in ups)) for k in self.model},
            {m: {k: f(*(u.extra[m][k] for u in ups)) for k in drawer} for m, drawer in self.extra.items()},
        )


@dataclass(frozen=True)
class Total:
    """What the server receives where only sums may be seen, or where sums are all it needs."""

    ids_C: Tensor  # who is in it
    weight: Tensor  # sum of weights
    update: Fields = field(default_factory=dict)  # weighted sums, dense
    model: Fields = field(default_factory=dict)
    touched: Fields = field(default_factory=dict)  # per table of `update`: weight that touched each row, [I]
    extra: dict[str, Fields] = field(default_factory=dict)  # plain sums

    def __len__(self) -> int:
        return len(self.ids_C)


def take(x: Field, pick: Tensor) -> Field:
    return x[pick] if isinstance(x, Tensor) else x.take(pick)


def cat(xs: Sequence[Any]) -> Any:
    first = xs[0]
    if isinstance(first, Tensor):
        return torch.cat(list(xs))
    if isinstance(first, Ragged):
        return Ragged.cat(xs)
    return Rows(Ragged.cat([x.items for x in xs]), torch.cat([x.values for x in xs]), first.height)


def stack(uploads: Sequence[Upload]) -> Upload:
    return uploads[0].map(lambda *xs: cat(xs), *uploads[1:])

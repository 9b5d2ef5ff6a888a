"""The local training of one block: where clients start, what moves, and the loss of each step."""

from dataclasses import dataclass, field, replace
from math import prod

import torch
from torch import Tensor

from covey.contract.mechanism import Mechanism, client_views
from covey.core import Extra, FieldDict, Fields, Rng
from covey.mechanism import Batch, ClientView, Model, Objective, rows
from covey.solvers import Local

from .blocks import Block, rows_only, step_of

PACKED = "packed parameters"  # the name of the joint leaf
UNIT = 16  # numbers; whole vector registers


@dataclass(frozen=True)
class Packing:
    """Packs small shared parameters into one tensor, so that a step costs one operation for all."""

    names: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, model: Model, solver: Local, params: Fields) -> "Packing":
        """All shared parameters but the tables, if the solver treats them alike."""
        names = tuple(k for k in model.shared if k not in model.tables)
        alike = not solver.phases and not set(names) & {*solver.rates, *solver.per_item}
        if not alike or len(names) < 2:
            return cls()
        return cls(names, tuple(tuple(params[k].shape[1:]) for k in names))

    @property
    def sizes(self) -> list[int]:
        used = [prod(shape) for shape in self.shapes]
        return [*used, -sum(used) % UNIT]

    def pack(self, params: Fields) -> Tensor:
        """[C or 1, P]"""
        parts = [params[k].flatten(1) for k in self.names]
        return torch.nn.functional.pad(torch.cat(parts, 1), (0, self.sizes[-1]))

    def unpack(self, packed: Tensor) -> Fields:
        """Views, by name."""
        parts = packed.split(self.sizes, 1)
        named = zip(self.names, parts, self.shapes, strict=False)
        return {k: x.unflatten(1, shape) for k, x, shape in named}


@dataclass
class BlockTraining:
    """The local steps of a block.

    `base` is what was sent, `leaves` is what moves; a shared parameter is their sum. With
    mini-batches a step looks up only the rows of its examples (a window), unless a mechanism's loss
    needs the whole local table.
    """

    view: ClientView
    batch: Batch
    block: Block
    solver: Local
    mechanisms: tuple[Mechanism, ...]
    received: Extra  # by mechanism
    base: Fields
    leaves: Fields
    packing: Packing
    now: Batch | None = None  # the examples of the current step
    seen: tuple[int, Batch] | None = None  # a step and its examples, which several phases use
    now_base: Fields = field(default_factory=dict)

    def __post_init__(self) -> None:
        view, many = self.view, self.solver.epochs
        objective = view.objective
        self.ready = objective.prepare(self.batch)
        if type(objective).begin is not Objective.begin:
            params = join(self.base, self.leaves, self.packing)
            self.ready |= objective.begin(view.model, params, self.batch, self.ready, view.rng)
        in_steps = self.solver.batch and view.objective.pointwise
        # The order of the examples, by epoch.
        self.orders = [shuffled(view.rng, self.batch, e) for e in range(many)] if in_steps else []
        self.active: list[tuple[Mechanism, ClientView]] = []  # mechanisms with a loss
        if any(m.implements("loss") for m in self.mechanisms):
            params = join(self.base, self.leaves, self.packing)
            view = replace(view, batch=self.batch, objective_state=self.ready, params=params)
            for m, v in client_views(self.mechanisms, view, self.received):
                if m.implements("loss"):
                    self.active.append((m, replace(v, prepared=m.prepare(v))))
        # Their random streams, by step.
        self.rngs = [v.rng.folds(self.block.steps * many) for _, v in self.active]

    @property
    def windowed(self) -> bool:
        return bool(self.orders) and not self.active

    def window(self, step: int) -> Tensor:
        """Opens a step; returns which rows of the flattened tables its examples look up."""
        now = self._examples(step)
        assert now.index_CL is not None
        clients = torch.arange(len(now.index_CL), device=now.index_CL.device)
        first = clients[:, None] * self.block.n_rows
        self.now = rows_only(now)
        tables = [k for k in self.view.model.tables if k in self.base]
        self.now_base = {k: rows(self.base[k], self.now.items_CR) for k in tables}
        return now.index_CL + first

    def loss(self, leaves: Fields, step: int) -> Tensor:
        """The loss of each client in a step, [C]."""
        if self.windowed:
            params, now = join({**self.base, **self.now_base}, leaves, self.packing), self.now
        else:
            params, now = join(self.base, leaves, self.packing), self._examples(step)
        assert now is not None
        rng = self.view.rng.fold(step) if self.view.model.stochastic else self.view.rng
        loss_C = self.view.objective.loss(self.view.model, params, now, self.ready, rng, None)
        if self.solver.decay:
            loss_C = loss_C + self.solver.decay * self._norms(params, now)
        for (m, v), rngs in zip(self.active, self.rngs, strict=True):
            more = m.loss(replace(v, params=params, batch=now, rng=rngs[step], step=step))
            if more is not None:  # a client without examples in a mini-batch does not move
                loss_C = loss_C + (more * (now.weight_CL > 0).any(1) if self.orders else more)
        return loss_C

    def _norms(self, params: Fields, now: Batch) -> Tensor:
        """Squared norms of each client's own vectors, and their mean over its item rows, [C]."""
        model, norm_C = self.view.model, torch.zeros(len(now.items_CR), device=now.real_CR.device)
        fixed = (*model.tables, *getattr(model, "given", ()))
        for name in (*model.tables, *(k for k in model.kept if k not in fixed)):
            x = params[name]
            if name not in model.tables:
                norm_C = norm_C + x.flatten(1).square().sum(1)
                continue
            whole = x.shape[1] != now.items_CR.shape[1]
            v_CRD = rows(x, now.items_CR) if whole else x
            many_C = now.real_CR.sum(1).clamp(min=1)
            norm_C = norm_C + (v_CRD.square().sum(-1) * now.real_CR).sum(1) / many_C
        return norm_C

    def _examples(self, step: int) -> Batch:
        if not self.orders:
            return self.batch
        if self.seen is None or step != self.seen[0]:
            epoch, place = divmod(step, self.block.steps)
            self.seen = step, step_of(self.batch, self.orders[epoch], self.solver.batch, place)
        return self.seen[1]


def start(
    view: ClientView, kept: FieldDict, batch: Batch, pick: Tensor, windowed: bool, packing: Packing
) -> tuple[Fields, Fields]:
    """What was sent and what moves, of the clients `pick`; tables stay whole if windowed."""
    base: Fields = {}
    leaves: Fields = {}
    received = {k: view.params[k] for k in view.model.shared}
    if packing.names:
        rest = {k: v for k, v in received.items() if k not in packing.names}
        received = rest | {PACKED: packing.pack(received)}
    for name, sent in received.items():
        sent = sent if len(sent) == 1 else sent[pick]
        table = name in view.model.tables
        base[name] = rows(sent, batch.items_CR) if table and not windowed else sent
        shape = (*batch.items_CR.shape, *sent.shape[2:]) if table else (len(pick), *sent.shape[1:])
        leaves[name] = torch.zeros(shape, dtype=sent.dtype, device=sent.device)
    for name in view.model.kept:
        leaves[name] = kept[name][pick]
    return base, leaves


def join(base: Fields, leaves: Fields, packing: Packing) -> Fields:
    """The parameters as the model sees them."""
    params = {**base, **{k: base[k] + v if k in base else v for k, v in leaves.items()}}
    return params | packing.unpack(params.pop(PACKED)) if packing.names else params


def shuffled(rng: Rng, batch: Batch, epoch: int) -> Tensor:
    """A random order of each client's examples with the padding last, [C, L]."""
    words = (rng.fold(f"shuffle {epoch}").bits(batch.label_CL.shape[1]) >> 2) & 0x1FFFFFFFFFFFFFFF
    return torch.where(batch.weight_CL > 0, words, 0x7FFFFFFFFFFFFFFF).argsort(dim=1)

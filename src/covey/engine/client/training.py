"""Local training of a chunk of clients: draw examples, cut into blocks, train, collect results."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from covey.contract.mechanism import Mechanism, client_views
from covey.core import CoveyError, Extra, FieldDict, Fields, Rows, Sent
from covey.mechanism import ClientView, Model, Objective, rows
from covey.objectives.pairs import NoObjective
from covey.solvers import Local

from .blocks import Block, Engine, Work, whole_batch
from .local_steps import PACKED, BlockTraining, Packing, start
from .planning import CostModel, GpuCostModel, Table, plan

FEW = 512  # examples of a client, up to which it costs more to start an operation than to pad
LIGHT = 4  # examples that only name a row of a table, for the cost of one row


@dataclass
class Trained:
    """The results of local training, filled block by block in the order of the chunk."""

    moved: Fields = field(default_factory=dict)  # kept parameters, accumulated updates of others
    state: Fields = field(default_factory=dict)  # of the optimiser, where clients keep it
    sums: Fields = field(default_factory=dict)  # of the updates over all clients, by `summed`


@dataclass(frozen=True)
class Trainer:
    """Trains cohorts on this device."""

    solver: Local
    mechanisms: tuple[Mechanism, ...]
    engine: Engine

    def work(self, view: ClientView, extra: Extra) -> Work:
        """Examples of this participation, with what mechanisms add."""
        data, n_items = view.data, view.catalogue.n_items
        rng = view.rng.fold("examples")
        examples = view.objective.examples(data.items, data.avoid, n_items, rng)
        for m, v in client_views(self.mechanisms, view, extra):
            examples = m.augment(v, examples)
        whole = any(m.whole_table for m in self.mechanisms) or view.objective.whole_table
        whole |= not set(view.model.tables).isdisjoint(view.model.kept)
        merged = view.objective.pointwise
        batch = self.solver.batch * merged
        made = Work.of(examples, n_items, whole=whole, pointwise=merged, batch=batch)
        return replace(made, width=getattr(view.model, "dim", 0) if view.model.sequential else 0)

    def blocks(self, work: Work) -> list[Block]:
        """The blocks in which clients train for themselves."""
        return list(plan(work, self.costs(work)))

    def costs(self, work: Work) -> CostModel:
        """What blocks cost on this device, where each client has a table of its own."""
        budget, windowed = self.engine.rows_per_block(), self._windowed(work)
        waits = self.solver.optimizer == "sgd"  # Adam would move on
        table: Table = "looked up" if windowed and waits else "moved"
        if self.engine.device == "cpu":
            return CostModel(budget, self.mechanisms, table, waits=waits)
        window = work.batch if windowed else 0
        return GpuCostModel(budget, self.mechanisms, table, waits=waits, window=window)

    def _costs_of_sum(self, view: ClientView, work: Work, one_table: bool) -> CostModel:
        """What blocks cost where only a sum is needed, so that no client's bits have to be kept."""
        costs = self.costs(work)
        if one_table:
            costs = replace(costs, table="shared")
        if isinstance(costs, GpuCostModel):
            return replace(costs, one_size=True)
        short = len(work.examples.label) <= FEW * len(work.examples.items)
        light = LIGHT if view.objective.light else 1
        return replace(costs, coarse=short, examples_per_row=light)

    def _precomputed(self, view: ClientView, extra: Extra) -> Extra:
        """What was sent to each mechanism, and what it computes once for several clients."""
        extra = dict(extra)
        for m, v in client_views(self.mechanisms, view, extra):
            if m.implements("precompute"):
                more = m.precompute(v)
                shared = {**v.received.shared, **more.shared}
                extra[m.listens or m.name] = Sent(shared, {**v.received.each, **more.each})
        return extra

    def _windowed(self, work: Work) -> bool:
        """Whether a step looks up only the rows of its examples."""
        return bool(work.batch) and not any(m.implements("loss") for m in self.mechanisms)

    def train(self, view: ClientView, kept: FieldDict, extra: Extra) -> tuple[Work, Trained]:
        """Trains each client; `kept` is what clients keep, `extra` what mechanisms received."""
        work, out, extra = self.work(view, extra), Trained(), self._precomputed(view, extra)
        packing = Packing.of(view.model, self.solver, view.params)
        windowed, tables = self._windowed(work), view.model.tables
        for block in self.blocks(work):
            batch, pick = whole_batch(work, block), block.pick
            data = view.data.take(pick) if self.mechanisms else view.data
            here = replace(view, data=data, rng=view.rng.take(pick))
            base, leaves = start(here, kept, batch, pick, windowed, packing)
            own = {k: s.take(pick) for k, s in extra.items()}
            parts = here, batch, block, self.solver, self.mechanisms
            training = BlockTraining(*parts, own, base, leaves, packing)
            steps, old = block.steps * self.solver.epochs, self._optimizer_state(view, kept, pick)
            about = steps, work.n_items, old, tables, training.window if windowed else None
            state = self.solver.run(leaves, training.loss, *about)
            self._collect(view.model, work, block, leaves, state, out)
        if PACKED in out.moved:
            out.moved |= packing.unpack(out.moved.pop(PACKED))
        return work, out

    def _collect(
        self, model: Model, work: Work, block: Block, leaves: Fields, state: Fields, out: Trained
    ) -> None:
        pick, count = block.pick[: block.real], len(work.examples.items)
        ids, flat = work.rows_of(pick)
        real = ids.owner * block.n_rows + ids.place  # rows that are no padding
        for name, leaf in leaves.items():
            leaf = leaf[: block.real].detach()
            if name in model.tables and name in model.shared:
                _fill(out.moved, name, flat, leaf.flatten(0, 1).index_select(0, real), work.n_rows)
            else:
                _fill(out.moved, name, pick, leaf, count)
        for name, value in state.items():
            if self.solver.state == "kept" and name.rpartition("/")[0] in model.kept:
                _fill(out.state, name, pick, value[: block.real], count)

    def _optimizer_state(self, view: ClientView, kept: FieldDict, pick: Tensor) -> Fields:
        """The state that the clients kept; a table that was delivered has none yet."""
        if self.solver.state == "fresh" or self.solver.optimizer == "sgd":
            return {}
        none = torch.zeros(len(pick), dtype=torch.int64, device=pick.device)
        counts = {f"{name}/t": none.clone() for name in view.model.kept}
        return counts | {k[4:]: v[pick].clone() for k, v in kept.items() if k.startswith("opt/")}

    def summed(self, view: ClientView, kept: FieldDict, extra: Extra) -> tuple[Work, Trained]:
        """The same as `train` with the sum of all one-step updates, by one backward pass."""
        work, out = self.work(view, extra), Trained()
        total = {k: torch.zeros_like(view.params[k][0]) for k in view.model.shared}
        one_table = work.local is None and not self.mechanisms
        local = () if one_table else view.model.tables
        for block in plan(work, self._costs_of_sum(view, work, one_table)):
            pick = block.pick[: block.real]
            batch = whole_batch(work, replace(block, pick=pick))
            here = replace(view, data=view.data.take(pick), rng=view.rng.take(pick))
            sent = {k: view.params[k] for k in total}
            sent |= {k: rows(sent[k], batch.items_CR) for k in total if k in local}
            base = {k: v.detach().requires_grad_() for k, v in sent.items()}
            own = {k: kept[k][pick].detach().clone().requires_grad_() for k in view.model.kept}
            received = {k: s.take(pick) for k, s in extra.items()}
            parts = here, batch, block, self.solver, self.mechanisms
            training = BlockTraining(*parts, received, base, own, Packing())
            leaves, loss = {**base, **own}, training.loss(own, 0).sum()
            grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
            for (name, leaf), grad in zip(leaves.items(), grads, strict=True):
                if name not in total:
                    move = 0 if grad is None else grad * -self.solver.rate(name, work.n_items)
                    _fill(out.moved, name, pick, leaf.detach() + move, len(work.examples.items))
                elif grad is not None:
                    _add(total[name], grad, batch.items_CR if name in local else None)
        out.sums = {k: v.mul_(-self.solver.rate(k, work.n_items)) for k, v in total.items()}
        return work, out


def upload_rows(work: Work, values: Tensor) -> Rows:
    """Rows of all clients, laid out flat, with the items that they belong to."""
    return Rows(work.row_items(), values, work.n_items)


def _add(total: Tensor, grad: Tensor, items_CR: Tensor | None) -> None:
    """Adds a parameter's gradient, or that of some rows for each client, in a fixed order."""
    if items_CR is None:
        total += grad[0]
    elif total.device.type == "cpu":
        total.index_add_(0, items_CR.flatten(), grad.flatten(0, 1))
    else:  # sorted, where an addition into rows would come in any order
        total += torch.ops.aten.embedding_dense_backward(grad, items_CR, len(total), -1, False)


def _fill(into: Fields, name: str, at: Tensor, values: Tensor, height: int) -> None:
    if name not in into:
        into[name] = values.new_empty(height, *values.shape[1:])
    into[name].index_copy_(0, at, values)


def check_training(model: Model, objective: Objective, solver: Local) -> None:
    """Refuses a training step that could not work."""
    if solver.batch and (objective.sequential or not objective.pointwise):
        raise CoveyError("this objective trains on whole lists: set solver.batch = 0")
    if isinstance(objective, NoObjective):
        raise CoveyError("NoObjective trains nothing: leave out [solver], or use another objective")
    if model.sequential and not objective.sequential:
        wrong = f"{type(model).__name__} has no private user vector but reads the client's list"
        why = f"which {type(objective).__name__} does not show it"
        use = "use covey.objectives:NextItemSoftmax, or a model such as covey.models.mf:MF"
        raise CoveyError(f"{wrong}, {why}; {use}")
    known = (*model.shared, *model.kept)
    for k in (*(k for phase in solver.phases for k in phase), *solver.rates, *solver.per_item):
        if k not in known:
            raise CoveyError(f"solver: the model has {', '.join(known)}, and no parameter {k!r}")

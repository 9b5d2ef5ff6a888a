"""Local training of a chunk of clients: draw examples, cut into blocks, solve, collect."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from covey.contract.mechanism import Mechanism, client_views
from covey.contract.model import rows
from covey.contract.views import ClientView
from covey.core.messages import Sent
from covey.core.ragged import FieldDict, Fields, Rows
from covey.solvers import Local

from .blocks import Block, Engine, Work, whole_batch
from .local_steps import BlockTraining, start
from .packing import PACKED, Packing
from .planning import CostModel, GpuCostModel, plan

FEW = 512  # examples of a client, up to which it costs more to start an operation than to pad
LIGHT = 4  # examples that only name a row of a table, for the cost of one row


@dataclass
class Trained:
    """What local training leaves behind, filled block by block in the order of the chunk."""

    moved: Fields = field(
        default_factory=dict
    )  # kept parameters, or accumulated updates of shared ones
    state: Fields = field(default_factory=dict)  # optimiser state to keep


@dataclass(frozen=True)
class Trainer:
    solver: Local
    mechanisms: tuple[Mechanism, ...]
    engine: Engine

    def work(self, view: ClientView, extra: dict[str, Sent]) -> Work:
        """Examples of this participation, with what mechanisms add."""
        data = view.data
        examples = view.objective.examples(
            data.items, data.avoid, view.catalogue.n_items, view.rng.fold("examples")
        )
        for m, v in zip(self.mechanisms, client_views(self.mechanisms, view, extra), strict=True):
            examples = m.augment(v, examples)
        whole = any(m.whole_table for m in self.mechanisms) or view.objective.whole_table
        whole |= not set(view.model.tables).isdisjoint(view.model.kept)
        pointwise = view.objective.pointwise
        return Work.of(
            examples,
            view.catalogue.n_items,
            whole=whole,
            pointwise=pointwise,
            batch=self.solver.batch * pointwise,
        )

    def blocks(self, work: Work) -> list[Block]:
        """The blocks in which clients train for themselves."""
        return list(plan(work, self.costs(work)))

    def costs(self, work: Work) -> CostModel:
        """What blocks cost on this device, where each client has a table of its own."""
        waits = self.solver.optimizer == "sgd"  # Adam would move on
        costs = CostModel(self.engine.rows_per_block(), self.mechanisms, waits=waits)
        windowed = self._windowed(work)
        if windowed and self.solver.optimizer == "sgd":
            costs = replace(costs, table="looked up")
        if self.engine.device == "cpu":
            return costs
        window = work.batch if windowed else 0
        return GpuCostModel(
            costs.budget_rows, costs.mechanisms, costs.table, waits=waits, window=window
        )

    def _costs_of_sum(self, view: ClientView, work: Work, one_table: bool) -> CostModel:
        """What blocks cost where only a sum is wanted, and no client's own bits have to be kept."""
        costs = self.costs(work)
        if one_table:
            costs = replace(costs, table="shared")
        if isinstance(costs, GpuCostModel):
            return replace(costs, one_size=True)
        short = len(work.examples.label) <= FEW * len(work.examples.items)
        light = LIGHT if view.objective.light else 1
        return replace(costs, coarse=short, examples_per_row=light)

    def _common(self, view: ClientView, extra: dict[str, Sent]) -> dict[str, Sent]:
        """What mechanisms compute once for several clients joins what they hear."""
        extra = dict(extra)
        for m, v in zip(self.mechanisms, client_views(self.mechanisms, view, extra), strict=True):
            if m.implements("precompute"):
                more = m.precompute(v)
                extra[m.listens or m.name] = Sent(
                    {**v.received.shared, **more.shared}, {**v.received.each, **more.each}
                )
        return extra

    def _windowed(self, work: Work) -> bool:
        return bool(work.batch) and not any(m.implements("loss") for m in self.mechanisms)

    def train(
        self, view: ClientView, kept: FieldDict, extra: dict[str, Sent]
    ) -> tuple[Work, Trained]:
        work, out, extra = self.work(view, extra), Trained(), self._common(view, extra)
        packing = Packing.of(view.model, self.solver, view.params)
        for block in self.blocks(work):
            self._block(view, kept, extra, work, block, packing, out)
        if PACKED in out.moved:
            out.moved |= packing.unpack(out.moved.pop(PACKED))
        return work, out

    def _block(
        self,
        view: ClientView,
        kept: FieldDict,
        extra: dict[str, Sent],
        work: Work,
        block: Block,
        packing: Packing,
        out: Trained,
    ) -> None:
        batch, pick = whole_batch(work, block), block.pick
        view = replace(
            view,
            data=view.data.take(pick) if self.mechanisms else view.data,
            rng=view.rng.take(pick),
        )
        windowed = self._windowed(work)
        base, leaves = start(view, kept, batch, pick, windowed, packing)
        own = {k: s.take(pick) for k, s in extra.items()}
        lesson = BlockTraining.of(
            view, batch, block, self.solver, self.mechanisms, own, base, leaves, packing
        )
        state = self.solver.run(
            leaves,
            lesson.loss,
            block.steps * self.solver.epochs,
            work.n_items,
            self._memory(view, kept, pick),
            view.model.tables,
            lesson.window if windowed else None,
        )
        self._collect(view, work, block, leaves, state, out)

    def _collect(
        self,
        view: ClientView,
        work: Work,
        block: Block,
        leaves: Fields,
        state: Fields,
        out: Trained,
    ) -> None:
        pick, count = block.pick[: block.real], len(work.examples.items)
        ids, flat = work.rows_of(pick)
        real = ids.owner * block.n_rows + ids.place  # rows that are no padding
        for name, leaf in leaves.items():
            leaf = leaf[: block.real].detach()
            if name in view.model.tables and name in view.model.shared:
                _fill(out.moved, name, flat, leaf.flatten(0, 1).index_select(0, real), work.n_rows)
            else:
                _fill(out.moved, name, pick, leaf, count)
        for name, value in state.items():
            if self.solver.state == "kept" and name.rpartition("/")[0] in view.model.kept:
                _fill(out.state, name, pick, value[: block.real], count)

    def _memory(self, view: ClientView, kept: FieldDict, pick: Tensor) -> Fields:
        if self.solver.state == "fresh" or self.solver.optimizer == "sgd":
            return {}
        none = torch.zeros(len(pick), dtype=torch.int64, device=pick.device)
        counts = {
            f"{name}/t": none.clone() for name in view.model.kept
        }  # a table that came by delivery has none yet
        return counts | {k[4:]: v[pick].clone() for k, v in kept.items() if k.startswith("opt/")}

    def summed(
        self, view: ClientView, kept: FieldDict, extra: dict[str, Sent]
    ) -> tuple[Work, Fields, Trained]:
        """The sum of all clients' one-gradient updates as one backward pass from the shared parameters."""
        work, out = self.work(view, extra), Trained()
        total = {k: torch.zeros_like(view.params[k][0]) for k in view.model.shared}
        one_table = work.local is None and not self.mechanisms
        local = () if one_table else view.model.tables
        for block in plan(work, self._costs_of_sum(view, work, one_table)):
            pick = block.pick[: block.real]
            batch = whole_batch(work, replace(block, pick=pick))
            here = replace(view, data=view.data.take(pick), rng=view.rng.take(pick))
            sent = {
                k: rows(view.params[k], batch.items_CR) if k in local else view.params[k]
                for k in total
            }
            base = {k: v.detach().requires_grad_() for k, v in sent.items()}
            own = {k: kept[k][pick].detach().clone().requires_grad_() for k in view.model.kept}
            heard = {k: s.take(pick) for k, s in extra.items()}
            lesson = BlockTraining.of(
                here, batch, block, self.solver, self.mechanisms, heard, base, own, Packing()
            )
            leaves = {**base, **own}
            grads = torch.autograd.grad(
                lesson.loss(own, 0).sum(), list(leaves.values()), allow_unused=True
            )
            for (name, leaf), grad in zip(leaves.items(), grads, strict=True):
                if name not in total:
                    move = 0 if grad is None else grad * -self.solver.rate(name, work.n_items)
                    _fill(out.moved, name, pick, leaf.detach() + move, len(work.examples.items))
                elif grad is not None:
                    _add(total[name], grad, batch.items_CR if name in local else None)
        return work, {k: v.mul_(-self.solver.rate(k, work.n_items)) for k, v in total.items()}, out


def upload_rows(work: Work, values: Tensor) -> Rows:
    return Rows(work.row_items(), values, work.n_items)


def _add(total: Tensor, grad: Tensor, items_CR: Tensor | None) -> None:
    """Adds the gradient of a parameter, or of some rows of a table for each client, in a fixed order."""
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

"""Local training of a chunk of clients: draw examples, cut into blocks, solve, collect."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .blocks import Block, Engine, Work, plan, whole_batch
from .core import Drawer, Fields, Rows, Sent
from .lesson import Lesson, start
from .mechanism import ClientView, Mechanism, client_views
from .models.base import rows
from .packing import PACKED, Packing
from .solvers import Local


@dataclass
class Trained:
    """What local training leaves behind, filled block by block in the order of the chunk."""

    moved: Fields = field(default_factory=dict)  # kept parameters, or accumulated updates of shared ones
    state: Fields = field(default_factory=dict)  # optimiser state to keep


@dataclass(frozen=True)
class Trainer:
    solver: Local
    mechanisms: tuple[Mechanism, ...]
    engine: Engine

    def work(self, view: ClientView, extra: dict[str, Sent]) -> Work:
        """Examples of this participation, with what mechanisms add."""
        data = view.data
        examples = view.objective.examples(data.items, data.avoid, view.catalogue.n_items, view.rng.fold("examples"))
        for m, v in zip(self.mechanisms, client_views(self.mechanisms, view, extra), strict=True):
            examples = m.augment(v, examples)
        whole = any(m.whole_table for m in self.mechanisms) or not set(view.model.tables).isdisjoint(view.model.kept)
        pointwise = view.objective.pointwise
        return Work.of(
            examples, view.catalogue.n_items, whole=whole, pointwise=pointwise, batch=self.solver.batch * pointwise
        )

    def blocks(self, work: Work) -> list[Block]:
        """A row costs about 256 numbers; where steps touch only their own rows, the table itself costs little."""
        seldom = self._windowed(work) and self.solver.optimizer == "sgd"
        more = lambda n_rows: sum(m.floats(n_rows) for m in self.mechanisms) // 256
        cost = lambda n_rows: (n_rows // 4 if seldom else n_rows) + more(n_rows)
        return list(plan(work, self.engine.rows_per_block(), cost, coarse=self.engine.device != "cpu"))

    def _windowed(self, work: Work) -> bool:
        return bool(work.batch) and not any(m.overrides("loss") for m in self.mechanisms)

    def train(self, view: ClientView, kept: Drawer, extra: dict[str, Sent]) -> tuple[Work, Trained]:
        work, out = self.work(view, extra), Trained()
        packing = Packing.of(view.model, self.solver, view.params)
        for block in self.blocks(work):
            self._block(view, kept, extra, work, block, packing, out)
        if PACKED in out.moved:
            out.moved |= packing.unpack(out.moved.pop(PACKED))
        return work, out

    def _block(
        self,
        view: ClientView,
        kept: Drawer,
        extra: dict[str, Sent],
        work: Work,
        block: Block,
        packing: Packing,
        out: Trained,
    ) -> None:
        batch, pick = whole_batch(work, block), block.pick
        view = replace(view, data=view.data.take(pick) if self.mechanisms else view.data, rng=view.rng.take(pick))
        windowed = self._windowed(work)
        base, leaves = start(view, kept, batch, pick, windowed, packing)
        own = {k: s.take(pick) for k, s in extra.items()}
        lesson = Lesson.of(view, batch, block, self.solver, self.mechanisms, own, base, leaves, packing)
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

    def _collect(self, view: ClientView, work: Work, block: Block, leaves: Fields, state: Fields, out: Trained) -> None:
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

    def _memory(self, view: ClientView, kept: Drawer, pick: Tensor) -> Fields:
        if self.solver.state == "fresh" or self.solver.optimizer == "sgd":
            return {}
        none = torch.zeros(len(pick), dtype=torch.int64, device=pick.device)
        counts = {f"{name}/t": none.clone() for name in view.model.kept}  # a table that came by delivery has none yet
        return counts | {k[4:]: v[pick].clone() for k, v in kept.items() if k.startswith("opt/")}

    def summed(self, view: ClientView, kept: Drawer, extra: dict[str, Sent]) -> tuple[Work, Fields, Trained]:
        """The sum of all clients' one-gradient updates as one backward pass from the shared parameters."""
        work, out = self.work(view, extra), Trained()
        total = {k: torch.zeros_like(view.params[k][0]) for k in view.model.shared}
        for block in self.blocks(work):
            pick = block.pick[: block.real]
            batch = whole_batch(work, replace(block, pick=pick))
            here = replace(view, data=view.data.take(pick), rng=view.rng.take(pick))
            shared = {k: view.params[k].detach().requires_grad_() for k in total}
            own = {k: kept[k][pick].detach().clone().requires_grad_() for k in view.model.kept}
            base = {k: rows(v, batch.items_CR) if k in view.model.tables else v for k, v in shared.items()}
            mine = {k: s.take(pick) for k, s in extra.items()}
            lesson = Lesson.of(here, batch, block, self.solver, self.mechanisms, mine, base, own, Packing())
            leaves = {**shared, **own}
            grads = torch.autograd.grad(lesson.loss(own, 0).sum(), list(leaves.values()), allow_unused=True)
            for (name, leaf), grad in zip(leaves.items(), grads, strict=True):
                move = torch.zeros_like(leaf) if grad is None else grad * -self.solver.rate(name, work.n_items)
                if name in total:
                    total[name] += move[0]
                else:
                    _fill(out.moved, name, pick, leaf.detach() + move, len(work.examples.items))
        return work, total, out


def upload_rows(work: Work, values: Tensor) -> Rows:
    return Rows(work.row_items(), values, work.n_items)


def _fill(into: Fields, name: str, at: Tensor, values: Tensor, height: int) -> None:
    if name not in into:
        into[name] = values.new_empty(height, *values.shape[1:])
    into[name].index_copy_(0, at, values)

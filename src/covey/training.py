"""Local training of a chunk of clients: draw examples, cut into blocks, solve, collect."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .blocks import Block, Engine, Work, plan, step_of, whole_batch
from .core import Drawer, Fields, Rows, Sent
from .examples import Batch
from .mechanism import ClientView, Mechanism, client_views
from .models.base import rows
from .rng import Rng
from .solvers import Local
from .solvers.local import Forward


@dataclass
class Trained:
    """What local training leaves behind, filled block by block in the order of the chunk."""

    moved: Fields = field(default_factory=dict)  # leaves: kept parameters, or accumulated updates
    tuned: Fields = field(default_factory=dict)  # trained rows [T, D] of shared tables
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
        extra = lambda n_rows: sum(m.floats(n_rows) for m in self.mechanisms) // 256  # a row costs about 256 numbers
        return list(plan(work, self.engine.rows_per_block(), extra))

    def train(self, view: ClientView, kept: Drawer, extra: dict[str, Sent]) -> tuple[Work, Trained]:
        work, out = self.work(view, extra), Trained()
        for block in self.blocks(work):
            self._block(view, kept, extra, work, block, out)
        return work, out

    def _block(
        self, view: ClientView, kept: Drawer, extra: dict[str, Sent], work: Work, block: Block, out: Trained
    ) -> None:
        batch = whole_batch(work, block)
        pick = block.pick
        view = replace(view, data=view.data.take(pick), rng=view.rng.take(pick))
        base, leaves = start(view, kept, batch, pick)
        forward = self._forward(view, base, leaves, batch, block, {k: s.take(pick) for k, s in extra.items()})
        memory = self._memory(kept, leaves, pick)
        state = self.solver.run(leaves, forward, block.steps * self.solver.epochs, work.n_items, memory)
        _, flat = work.rows_of(pick[: block.real])
        count, total = len(work.examples.items), len(work.row_items().values)
        with torch.no_grad():
            for name, leaf in leaves.items():
                if name in base and name in view.model.tables:
                    real = batch.real_CR[: block.real]
                    _fill(out.moved, name, flat, leaf[: block.real][real], total)
                    if name in view.model.tuned:
                        _fill(out.tuned, name, flat, (base[name] + leaf)[: block.real][real], total)
                else:
                    _fill(out.moved, name, pick[: block.real], leaf[: block.real], count)
            for name, value in state.items():
                if self.solver.state == "kept" and name.rpartition("/")[0] in view.model.kept:
                    _fill(out.state, name, pick[: block.real], value[: block.real], count)

    def _forward(
        self, view: ClientView, base: Fields, leaves: Fields, batch: Batch, block: Block, extra: dict[str, Sent]
    ) -> Forward:
        ready = view.objective.prepare(batch)
        view = replace(view, batch=batch, ready=ready, params=_params(base, leaves))
        views = client_views(self.mechanisms, view, extra)
        active = [
            (m, replace(v, prepared=m.prepare(v)))
            for m, v in zip(self.mechanisms, views, strict=True)
            if m.overrides("loss")
        ]
        shuffle = [_order(view.rng, batch, e) for e in range(self.solver.epochs)] if self.solver.batch else []

        def forward(leaves: Fields, step: int) -> Tensor:
            now = batch
            if shuffle:
                epoch, place = divmod(step, block.steps)
                now = step_of(batch, shuffle[epoch], self.solver.batch, place)
            params, rng = _params(base, leaves), view.rng.fold(step)
            loss_C = view.objective.loss(view.model, params, now, ready, rng, None)
            for m, v in active:
                more = m.loss(replace(v, params=params, batch=now, rng=v.rng.fold(step)))
                loss_C = loss_C if more is None else loss_C + more
            return loss_C

        return forward

    def _memory(self, kept: Drawer, leaves: Fields, pick: Tensor) -> Fields:
        if self.solver.state == "fresh" or self.solver.optimizer == "sgd":
            return {}
        return {k[4:]: v[pick].clone() for k, v in kept.items() if k.startswith("opt/") and isinstance(v, Tensor)}

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
            forward = self._forward(here, base, own, batch, block, {k: s.take(pick) for k, s in extra.items()})
            leaves = {**shared, **own}
            grads = torch.autograd.grad(forward(own, 0).sum(), list(leaves.values()), allow_unused=True)
            for (name, leaf), grad in zip(leaves.items(), grads, strict=True):
                move = torch.zeros_like(leaf) if grad is None else grad * -self.solver.rate(name, work.n_items)
                if name in total:
                    total[name] += move[0]
                else:
                    _fill(out.moved, name, pick, leaf.detach() + move, len(work.examples.items))
        return work, total, out


def start(view: ClientView, kept: Drawer, batch: Batch, pick: Tensor) -> tuple[Fields, Fields]:
    """Where training starts: `base` is what was sent, `leaves` is what moves."""
    base: Fields = {}
    leaves: Fields = {}
    for name in view.model.shared:
        sent = view.params[name]
        sent = sent if len(sent) == 1 else sent[pick]
        base[name] = rows(sent, batch.items_CR) if name in view.model.tables else sent
        leaves[name] = torch.zeros(len(pick), *base[name].shape[1:], dtype=sent.dtype, device=sent.device)
    for name in view.model.kept:
        leaves[name] = kept[name][pick]
    return base, leaves


def upload_rows(work: Work, values: Tensor) -> Rows:
    return Rows(work.row_items(), values, work.n_items)


def _params(base: Fields, leaves: Fields) -> Fields:
    joined = {k: base[k] + v if k in base else v for k, v in leaves.items()}
    return {**base, **joined}


def _fill(into: Fields, name: str, at: Tensor, values: Tensor, height: int) -> None:
    if name not in into:
        into[name] = values.new_zeros(height, *values.shape[1:])
    into[name][at] = values


def _order(rng: Rng, batch: Batch, epoch: int) -> Tensor:
    """A random order of each client's examples with the padding last, [C, L]."""
    words = (rng.fold(f"shuffle {epoch}").bits(batch.label_CL.shape[1]) >> 2) & 0x1FFFFFFFFFFFFFFF
    return torch.where(batch.weight_CL > 0, words, 0x7FFFFFFFFFFFFFFF).argsort(dim=1)

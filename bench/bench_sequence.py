"""Sequence clients against loops over clients: one gradient each, summed for the server's Adam.

All sides do whole rounds of 256 clients, the same ones, in turn, with one thread each: negatives,
forward, backward, server step. The plain loop copies the server's weights in, takes the client's
step and adds up the changes, as federated code does; the accumulating one adds up gradients in
place, which only a simulation can do. The upper limit of the speed-up is the plain loop's time over
that of the needed arithmetic at the speed of a large matrix product. COVEY_DATA=folder measures on
the real datasets.
"""

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import ROOT, Engine, ceilings, commit, config_of, interleaved, machine, say, source_of
from covey.core.ragged import Fields
from covey.core.rng import Rng

D = 64
NAMES = {"gru": "covey.models.gru:GRU", "sasrec": "covey.models.sasrec:SASRec"}
AT_LEAST = 10
PLAIN, SUMMING = "plain loop", "accumulating loop"


class GruNet(nn.Module):
    """States before each item of one list."""

    def __init__(self, public: Fields) -> None:
        super().__init__()
        self.items = nn.Parameter(public["items"].clone())
        self.cell = nn.GRU(D, D, batch_first=True)
        theirs = {
            "weight_ih_l0": "w_in",
            "weight_hh_l0": "w_state",
            "bias_ih_l0": "b_in",
            "bias_hh_l0": "b_state",
        }
        for name, ours in theirs.items():
            getattr(self.cell, name).data = (
                public[ours].mT if ours[0] == "w" else public[ours]
            ).clone()

    def forward(self, items_P: Tensor) -> Tensor:
        h_PD = self.cell(F.embedding(items_P, self.items)[None])[0][0]
        return F.pad(h_PD[:-1], (0, 0, 1, 0))


class SasNet(nn.Module):
    """The same by self-attention."""

    def __init__(self, public: Fields) -> None:
        super().__init__()
        for name, value in public.items():
            setattr(self, name, nn.Parameter(value.clone()))

    def forward(self, items_P: Tensor) -> Tensor:
        x = F.embedding(items_P[:-1], self.items) * D**0.5 + self.positions[: len(items_P) - 1]
        for n in range(len(self.w) // 5):
            w, b, (one, two) = self.w[5 * n :], self.b[5 * n :], self.norm[2 * n : 2 * n + 2]
            q = F.layer_norm(x, (D,), *one)
            look = F.scaled_dot_product_attention(
                *((y @ w[k] + b[k])[None, None] for k, y in enumerate((q, x, x))), is_causal=True
            )
            x = F.layer_norm(q + look[0, 0], (D,), *two)
            x = x + (x @ w[3] + b[3]).relu() @ w[4] + b[4]
        return F.pad(F.layer_norm(x, (D,), *self.norm[-1]), (0, 0, 1, 0))


@dataclass
class Loop:
    """Clients one after the other."""

    net: nn.Module
    lists: list[Tensor]
    n_items: int
    last: int
    local: int
    stored: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.adam = torch.optim.Adam(self.net.parameters(), lr=0.01)
        for items in self.lists:  # drawn once, as the clients keep them
            free = torch.ones(self.n_items)
            free[items] = 0
            self.stored.append(free.multinomial(100))

    def plain_round(self, clients: list[int]) -> None:
        """Trains each client from the server's weights; the changes add up to a gradient."""
        params = list(self.net.parameters())
        server = [p.detach().clone() for p in params]
        change = [torch.zeros_like(p) for p in params]
        local = torch.optim.SGD(params, lr=1.0)
        for client in clients:
            for p, sent in zip(params, server, strict=True):
                p.data.copy_(sent)
            local.zero_grad()
            self.backward(client)
            local.step()
            for total, p, sent in zip(change, params, server, strict=True):
                total += p.detach() - sent
        for p, sent, total in zip(params, server, change, strict=True):
            p.data.copy_(sent)
            p.grad = -total
        self.adam.step()

    def negatives(self, client: int, many: int) -> Tensor:
        return self.stored[client][torch.rand(many, 100).argsort(1)[:, : self.local]]

    def round(self, clients: list[int]) -> None:
        self.adam.zero_grad()
        for client in clients:
            self.backward(client)
        self.adam.step()

    def backward(self, client: int) -> None:
        items_P = self.lists[client][-self.last :]
        candidates = torch.cat([items_P[:, None], self.negatives(client, len(items_P))], 1)
        logits = (F.embedding(candidates, self.net.items) @ self.net(items_P)[..., None]).squeeze(2)
        (torch.logsumexp(logits, 1) - logits[:, 0]).sum().backward()


def same_work(engine: Engine, loop: Loop, ids_C: Tensor) -> float:
    """The cosine of both sides' updates in one round with the same negatives."""
    before = {k: v.clone() for k, v in engine.server.public.items()}
    training = engine.fleet.data.training
    rng = Rng.of(engine.fleet.seed, engine.number + 1, torch.arange(len(training.items))).fold(
        "examples"
    )
    made = engine.method.objective.examples(training.items, training.avoid, loop.n_items, rng)
    drawn = made.items.values.split(made.items.lengths.tolist())
    fresh, given = loop.negatives, lambda client, many: drawn[client][many:].view(many, -1)
    loop.negatives = given  # type: ignore[method-assign]
    engine.round(ids_C), loop.round(ids_C.tolist())
    loop.negatives = fresh  # type: ignore[method-assign]
    moved = [x - before["items"] for x in (engine.server.public["items"], loop.net.items.detach())]  # type: ignore[operator]
    return float(torch.cosine_similarity(*(x.flatten() for x in moved), 0))


def gflop(model: str, n_C: Tensor, candidates: int) -> float:
    """The operations of a round's matrix products, forward and twice as many backward."""
    n_C = n_C.double()
    gates = 12 * D * D * n_C  # two matrices [D, 3 D]
    layers = 2 * (
        10 * D * D * n_C + 2 * D * n_C * n_C
    )  # five matrices [D, D], half an attention map made and used
    scores = 2 * D * candidates * n_C
    return 3e-9 * float(((gates if model == "gru" else layers) + scores).sum())


def measure(model: str, dataset: str, clients: int, repeats: int, sgemm: float) -> dict[str, Any]:
    """One line of the table, after a look whether both sides do the same."""
    where = [f"model.use={NAMES[model]}", f"model.dim={D}", "model.dropout=0.0"]
    config = config_of("fedcl-plain", "loo-full", *source_of(dataset), *where)
    engine = Engine.of(config)
    training = engine.fleet.data.training
    lists = list(training.items.values.split(training.items.lengths.tolist()))
    net = (GruNet if model == "gru" else SasNet)(engine.server.public)
    objective: Any = engine.method.objective
    loop = Loop(net, lists, engine.method.catalogue.n_items, objective.last, objective.local)
    ids_C = engine.stratified(clients)
    if (cosine := same_work(engine, loop, ids_C)) < 0.99:
        raise SystemExit(f"the two sides do not do the same work: cosine of the updates {cosine}")
    sides = {
        "covey": partial(engine.round, ids_C),
        PLAIN: partial(loop.plain_round, ids_C.tolist()),
    }
    times = interleaved({**sides, SUMMING: partial(loop.round, ids_C.tolist())}, repeats)
    n_C = training.items.lengths[ids_C].clamp(max=objective.last)
    needed = gflop(model, n_C, 1 + objective.local)
    return {
        "workload": f"{model}, one gradient each, Eq. 1 with local negatives",
        "data": f"{config.data.name}, {dataset} sized",
        "clients": len(ids_C),
        "items per client": float(n_C.double().mean()),
        "times the plain loop": times.times(PLAIN),
        "of single repeats": times.spread(PLAIN),
        "times the accumulating loop": times.times(SUMMING),
        "at least": AT_LEAST,
        "reached": times.times(PLAIN) >= AT_LEAST,
        "GFLOP of a round": needed,
        "times at most": times.median(PLAIN) * sgemm / needed,
        "clients per CPU second": {k: len(ids_C) / times.median(k) for k in times.seconds},
        "cpu_seconds": times.seconds,
        "cosine of updates": cosine,
        "config": config.tree,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", nargs="*", default=["beauty", "ml-1m"])
    parser.add_argument("--models", nargs="*", default=["sasrec", "gru"])
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench-sequence.json")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    peak, rows = ceilings(), []
    sgemm = next(v for k, v in peak.items() if k.startswith("sgemm"))
    for dataset in options.data:
        for model in options.models:
            rows.append(measure(model, dataset, options.clients, options.repeats, sgemm))
            said = rows[-1]
            keys = (
                "times the plain loop",
                "of single repeats",
                "times the accumulating loop",
                "times at most",
            )
            say(f"{model} on {said['data']}: { {k: said[k] for k in keys} }")
    result = {
        "commit": commit(),
        "machine": machine(),
        "ceilings per CPU second": peak,
        "rows": rows,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(options.out.name)


if __name__ == "__main__":
    main()

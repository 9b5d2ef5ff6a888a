"""Training of many clients at once against one plain torch loop per client, in float64."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.fleet import Request
from covey.contract.mechanism import Mechanism
from covey.contract.model import Model
from covey.contract.views import ClientView, TrainingData
from covey.core.messages import Catalogue, Download, Sent, Upload
from covey.core.ragged import FieldDict, Fields, Ragged, Rows
from covey.core.rng import Rng
from covey.engine.client.blocks import Engine
from covey.engine.client.program import LocalData, Program
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing.compare import cast, clone, expect_same

ITEMS = 30
LISTS = [[4, 9, 2], [], [7], list(range(ITEMS)), [1, 2, 3, 5, 8, 13, 21], [11, 12], [20, 3]]
DATA = LocalData(TrainingData(Ragged.of(LISTS), Ragged.of([sorted(x) for x in LISTS])))
IDS = torch.tensor([3, 14, 15, 92, 65, 35, 89])
DOUBLE = torch.float64


@dataclass
class Case:
    """A cohort before training, all in float64."""

    model: Model
    solver: Local
    objective: Bce = field(default_factory=lambda: Bce(negatives=3))
    mechanisms: tuple[Mechanism, ...] = ()

    def __post_init__(self) -> None:
        self.rng = Rng.of(1, 2, IDS)
        self.program = Program(
            self.model, self.objective, Catalogue(ITEMS), self.solver, self.mechanisms
        )
        start = cast(self.model.public(ITEMS, Rng.server(5, 0, "public")), DOUBLE)
        self.public = {k: v for k, v in start.items() if k in self.model.shared}
        self.kept: FieldDict = cast(self.program.birth(self.rng), DOUBLE)
        for name in set(start) - set(self.public):
            self.kept[name] = start[name].expand(len(IDS), *start[name].shape).clone()

    def train(
        self, kept: FieldDict | None = None, rng: Rng | None = None
    ) -> tuple[FieldDict, Upload]:
        download = Download(Sent(dict(self.public)))
        return self.program.answer(
            Request("train", 1, IDS, download), kept or self.kept, DATA, rng or self.rng
        )

    def batches(self, c: int, rng: Rng) -> list[tuple[Tensor, Tensor]]:
        """The items and labels that client c trains on, step by step."""
        pick, steps = torch.tensor([c]), []
        mine, rng = DATA.training.take(pick), rng.take(pick)
        made = self.objective.examples(mine.items, mine.avoid, ITEMS, rng.fold("examples"))
        real = made.weight > 0
        for epoch in range(self.solver.epochs):
            words = (
                rng.fold(f"shuffle {epoch}").bits(len(made.label))[0] >> 2
            ) & 0x1FFFFFFFFFFFFFFF
            order = words[real].argsort() if self.solver.batch else torch.arange(int(real.sum()))
            for part in order.split(self.solver.batch or max(len(order), 1)):
                steps.append((made.items.values[real][part], made.label[real][part].to(DOUBLE)))
        return steps


def logits(model: Model, p: Fields, items: Tensor) -> Tensor:
    """The models' formulas once more, for one client and as in a textbook."""
    v_LD = p["items"][items]
    if isinstance(model, MF):
        return v_LD @ p["user"]
    if isinstance(model, LinearScore):
        return v_LD @ p["score"] + p["bias"]
    assert isinstance(model, NCF)
    h = torch.cat([p["user"].expand(len(items), -1), v_LD], 1)
    h = h @ torch.cat([p["user_half"], p["w0"]]) + p["b0"]
    for k in range(1, len(model.hidden) + 1):
        h = h.relu() @ p[f"w{k}"] + p[f"b{k}"]
    return h[:, 0]


def optimiser_of(solver: Local, names: tuple[str, ...], params: Fields) -> torch.optim.Optimizer:
    groups: list[dict[str, Any]] = [
        {"params": [params[n]], "lr": solver.rate(n, ITEMS)} for n in names
    ]
    return torch.optim.SGD(groups) if solver.optimizer == "sgd" else torch.optim.Adam(groups)


def plain_loop(case: Case, c: int, start: FieldDict, rng: Rng, kept: Fields) -> Fields:
    """One client's parameters after training, by torch.optim on whole tables."""
    solver = case.solver
    own = {k: start[k][c] for k in case.model.kept}
    params = {k: v.clone().requires_grad_() for k, v in {**case.public, **own}.items()}
    phases = solver.phases or (tuple(params),)
    optimisers = [
        optimiser_of(solver, tuple(n for n in phase if n in params), params) for phase in phases
    ]
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            name = next(n for n, p in params.items() if p is group["params"][0])
            if name in kept:
                optimiser.state[params[name]] = kept[name]
    for items, label in case.batches(c, rng):
        for optimiser in optimisers:
            for p in params.values():
                p.grad = torch.zeros_like(p)
            if len(items):
                F.binary_cross_entropy_with_logits(
                    logits(case.model, params, items), label
                ).backward()
            optimiser.step()
    kept |= {
        n: o.state[params[n]] for o in optimisers for n in case.model.kept if params[n] in o.state
    }
    return {k: v.detach() for k, v in params.items()}


def one(upload: Upload, name: str, c: int) -> Tensor:
    value = upload.update[name]
    return value.take(torch.tensor([c])).dense()[0] if isinstance(value, Rows) else value[c]


def check(case: Case, c: int, want: Fields, kept: FieldDict, upload: Upload) -> None:
    for name in case.model.kept:
        assert torch.allclose(kept[name][c], want[name], rtol=1e-9, atol=1e-12), (name, c)
    for name in case.model.shared:
        assert torch.allclose(
            one(upload, name, c), want[name] - case.public[name], rtol=1e-9, atol=1e-12
        ), (name, c)


PHASES = (("score", "bias"), ("items",))
CASES = {
    "sgd": Case(MF(4), Local("sgd", 0.3, epochs=3)),
    "adam": Case(MF(4), Local("adam", 0.05, epochs=3)),
    "sgd mini-batches": Case(MF(4), Local("sgd", 0.3, epochs=2, batch=5)),
    "adam mini-batches": Case(MF(4), Local("adam", 0.05, epochs=2, batch=5)),
    "mlp": Case(NCF(3, (5, 4), scale=0.5), Local("adam", 0.05, epochs=3)),
    "mlp mini-batches": Case(NCF(3, (5, 4), scale=0.5), Local("sgd", 0.2, epochs=2, batch=4)),
    "phases": Case(LinearScore(4), Local("sgd", 0.2, 3, 0, PHASES, {"items": 0.02}, ("items",))),
    "phases in mini-batches": Case(
        LinearScore(4), Local("sgd", 0.2, 2, 4, PHASES, {"items": 0.02}, ("items",))
    ),
    "adam in phases": Case(LinearScore(4), Local("adam", 0.02, 2, 4, PHASES)),
    "kept table": Case(LinearScore(4, keep_items=True), Local("sgd", 0.2, 2, 4)),
    "kept table, all at once": Case(LinearScore(4, keep_items=True), Local("adam", 0.02, 2)),
    "some parameters stay": Case(MF(4), Local("sgd", 0.3, epochs=2, phases=(("items",),))),
}


@pytest.mark.parametrize(
    "plan", ["cpu", "cuda"]
)  # where blocks are few, and clients wait in some steps
@pytest.mark.parametrize("name", CASES)
def test_a_cohort_trains_as_each_client_would_by_itself(name: str, plan: str) -> None:
    case = replace(CASES[name])
    case.program = replace(case.program, engine=Engine(plan))
    before = clone(case.kept)
    kept, upload = case.train()
    for c in range(len(IDS)):
        check(case, c, plain_loop(case, c, case.kept, case.rng, {}), kept, upload)
    expect_same(before, case.kept)


@pytest.mark.parametrize("batch", [0, 5])
def test_adam_goes_on_with_the_moments_it_kept(batch: int) -> None:
    case = Case(MF(4), Local("adam", 0.05, epochs=2, batch=batch, state="kept"))
    kept, state = case.kept, [{} for _ in IDS]  # type: list[Fields]
    for round in (1, 2, 3):
        rng, start = Rng.of(1, round, IDS), kept
        kept, upload = case.train(kept, rng)
        for c in range(len(IDS)):
            mine = {k: v for k, v in state[c].items() if k == "user"}
            want = plain_loop(case, c, start, rng, mine)
            check(case, c, want, kept, upload)
            state[c] = mine


@pytest.mark.parametrize("saturating", [False, True])
def test_the_update_is_the_sum_of_steps_and_not_after_minus_before(saturating: bool) -> None:
    """A step of 1e-7 on weights of 1,000 is lost in float32 if it is computed as a difference."""
    model, n = MF(2), len(IDS)
    solver = Local("sgd", 1.0, epochs=1)
    program = Program(model, Bce(1, saturating, "sum"), Catalogue(ITEMS), solver)
    table, user = torch.full((ITEMS, 2), 1000.0), torch.tensor([1e-7, -1e-7]).expand(n, 2)
    download = Download(Sent({"items": table}))
    _, upload = program.answer(
        Request("train", 1, IDS, download), {"user": user}, DATA, Rng.of(0, 1, IDS)
    )
    moved = upload.update[
        "items"
    ].values  # label - sigmoid(0), times the user's vector, for each positive or negative
    assert (
        torch.allclose(moved.abs() % 0.5e-7, torch.zeros(()), atol=1e-12)
        and float(moved.abs().min()) > 0
    )
    assert torch.equal(moved[:, 0], -moved[:, 1])
    after = table + torch.full_like(table, 0.5e-7)
    assert not bool((after - table).any())  # what a difference would have given


@pytest.mark.parametrize(
    "solver", [Local("sgd", 0.7, 1), Local("sgd", 0.7, 1, phases=(("items",),))]
)
@pytest.mark.parametrize("model", [MF(4), NCF(3, (5, 4), scale=0.5)])
def test_one_gradient_summed_at_once_is_the_sum_of_single_ones(model: Model, solver: Local) -> None:
    case = Case(model, solver)
    kept, upload = case.train()
    if not case.program.can_sum():
        assert solver.phases  # where some parameters stay, clients answer one by one
        return
    download = Download(Sent(dict(case.public)))
    again, total = case.program.answer_total(
        Request("train", 1, IDS, download), case.kept, DATA, case.rng
    )
    for name in model.kept:
        assert torch.allclose(again[name], kept[name], rtol=1e-12, atol=1e-14)
    for name, value in upload.update.items():
        whole = value.dense().sum(0) if isinstance(value, Rows) else value.sum(0)
        assert torch.allclose(total.update[name], whole, rtol=1e-12, atol=1e-13)
    rows = upload.update["items"].items.values
    assert torch.equal(total.touched["items"], torch.bincount(rows, minlength=ITEMS).float())
    assert float(total.weight) == len(IDS) and torch.equal(total.ids_C, IDS)


@dataclass(frozen=True)
class Nothing(Mechanism):
    """Adds a loss of zero, which makes clients hold their rows or whole tables at every step."""

    whole_table: bool = False
    name: str = "nothing"

    def loss(self, view: ClientView) -> Tensor:
        return 0 * view.params["items"].sum((1, 2))


@pytest.mark.parametrize("batch", [0, 5])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_whole_tables_train_as_touched_rows_do(batch: int, optimizer: Any) -> None:
    plain = Case(MF(4), Local(optimizer, 0.05, epochs=2, batch=batch))
    kept, upload = plain.train()
    for whole in (False, True):
        held, other = replace(plain, mechanisms=(Nothing(whole),)).train()
        assert torch.allclose(held["user"], kept["user"], rtol=1e-12, atol=1e-14)
        assert torch.allclose(
            other.update["items"].dense(), upload.update["items"].dense(), rtol=1e-12, atol=1e-14
        )


@pytest.mark.parametrize("rows", [1, 40, 10**6])
def test_the_size_of_blocks_does_not_matter(rows: int) -> None:
    """In float32, bit for bit."""
    model = NCF(3, (5, 4))
    public = model.public(ITEMS, Rng.server(5, 0, "public"))
    outcomes = []
    for budget in (8192, rows):
        engine = Engine(block_rows=budget)
        program = Program(model, Bce(), Catalogue(ITEMS), Local("adam", 0.01, 2), engine=engine)
        kept = program.birth(Rng.of(1, 0, IDS))
        outcomes.append(
            program.answer(
                Request("train", 1, IDS, Download(Sent(dict(public)))),
                kept,
                DATA,
                Rng.of(1, 1, IDS),
            )
        )
    expect_same(*outcomes)

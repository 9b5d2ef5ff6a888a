"""One round, top to bottom."""

from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from covey.aggregate.fold import total_of
from covey.contract.fleet import Fleet, Request
from covey.contract.mechanism import Mechanism
from covey.contract.views import ServerView
from covey.core.messages import Download, Round, Sent, Total, Upload
from covey.core.ragged import FieldDict, Fields
from covey.core.rng import Rng
from covey.engine.method import REMEDY, Method

METRIC = "tell/"  # begins the names of single numbers in a part's state that are written to the log


REMEDY["train"] = "leave it out, or use a linear combine"


@dataclass(frozen=True)
class Server:
    """All that survives a round on the server; with the fleet's state it is a checkpoint."""

    public: Fields
    state: dict[str, FieldDict] = field(default_factory=dict)  # of each part, by name


def enrol(server: Server, fleet: Fleet, method: Method) -> Server:
    """Round 0: clients get what they keep, tell what the mechanisms ask, and memory is set up."""
    method.check(fleet)
    round = Round(0, fleet.ids_N)
    answers = _join(server, fleet, method, round)
    look = lambda part: view(server, method, part.name, round)
    memory = {m.name: m.init_state(look(m), answers) for m in method.mechanisms}
    return replace(
        server,
        state={**memory, method.grouping.name: method.grouping.init_state(look(method.grouping))},
    )


def admit(server: Server, fleet: Fleet, method: Method, round_number: int, ids_C: Tensor) -> Server:
    """Late joiners: the same enrolment for them alone, and every mechanism hears of it."""
    round = Round(round_number, ids_C)
    answers = _join(server, fleet, method, round)
    memory = {
        m.name: m.admit_clients(view(server, method, m.name, round), answers)
        for m in method.mechanisms
    }
    return replace(server, state={**server.state, **memory})


def _join(server: Server, fleet: Fleet, method: Method, round: Round) -> Upload | None:
    start = {k: v for k, v in server.public.items() if k in method.model.kept}
    if start:
        fleet.ask(Request("deliver", round.number, round.ids_C, Download(Sent(dict(start)))))
    if not method.has_exchange("enrol"):
        return None
    answers = fleet.ask(
        Request("enrol", round.number, round.ids_C, Download(_public(server, method)))
    )
    assert isinstance(answers, Upload)
    return answers


def run_round(server: Server, fleet: Fleet, method: Method, round: Round) -> tuple[Server, Round]:
    """Returns the new server and the round narrowed to the clients that answered."""

    def each(hook: str) -> Server:
        return replace(
            server,
            state=server.state | {m.name: getattr(m, hook)(see(m)) for m in method.mechanisms},
        )

    def see(m: Mechanism) -> ServerView:
        return view(server, method, m.name, round)

    def sends(step: str, asked: Round) -> dict[str, Sent]:
        sent = {
            m.name: m.send(view(server, method, m.name, asked, step)) for m in method.mechanisms
        }
        if step == "train":
            sent[method.grouping.name] = method.grouping.send(
                view(server, method, method.grouping.name, asked)
            )
        return {name: s for name, s in sent.items() if s.shared or s.each}

    server = each("begin_round")
    if method.has_exchange("report"):
        ids_C, cohort = _reporters(server, fleet, method, round)
        download = Download(_public(server, method), sends("report", replace(round, ids_C=ids_C)))
        reports = fleet.ask(
            Request("report", round.number, ids_C, download, fold=method.hears_sums)
        )
        server = _hear(server, fleet, method, round, reports)
        round = replace(round, ids_C=reports.ids_C) if cohort else round  # those who answered

    if method.solver is not None and len(round.ids_C):
        download = Download(_public(server, method), sends("train", round))
        upload = fleet.ask(Request("train", round.number, round.ids_C, download, fold=method.folds))
        round = replace(round, ids_C=upload.ids_C)
        server, upload = _filter(server, method, round, upload)
        if len(upload):
            server = _aggregate(server, fleet, method, round, upload)
    return each("end_round"), round


def _aggregate(
    server: Server, fleet: Fleet, method: Method, round: Round, upload: Upload | Total
) -> Server:
    drawer, groups = method.grouping.groups(
        view(server, method, method.grouping.name, round), upload
    )
    server = _put(server, method.grouping.name, drawer)
    for group in groups:
        part = upload
        if group.rows is not None and isinstance(upload, Upload):
            part = (
                total_of(upload, group.rows)
                if method.combine.reads_uploads == "total"
                else upload.take(group.rows)
            )
        if group.weight is not None and isinstance(part, Upload):
            part = replace(part, weight_C=group.weight)
        if not _weighs(part):
            continue
        update, model = method.combine.combine(part, group.names)
        server = _count(server, method.combine.tally(part, group.names))
        for m in method.mechanisms:
            update = m.adjust_update(view(server, method, m.name, round), update)
        step = method.server_step
        drawer, params = step.step(server.state.get(step.name, {}), server.public, update)
        server = _put(server, step.name, drawer)
        params = {**{k: params[k] for k in update}, **model}
        for m in method.mechanisms:
            drawer, params = m.adjust_model(view(server, method, m.name, round), params)
            server = _put(server, m.name, drawer)
        if group.public:
            server = replace(server, public={**server.public, **params})
        else:
            ids_C = round.ids_C if group.rows is None else upload.ids_C[group.rows]
            fleet.ask(Request("deliver", round.number, ids_C, Download(Sent(dict(params)))))
    return server


def reported_metrics(server: Server) -> dict[str, dict[str, float]]:
    """What parts have to tell of the last round: single numbers, by part."""
    said = {
        name: {k: v for k, v in drawer.items() if k.startswith(METRIC)}
        for name, drawer in server.state.items()
    }
    return {
        name: {k.removeprefix(METRIC): float(v) for k, v in sorted(one.items())}
        for name, one in said.items()
        if one
    }


def _filter(
    server: Server, method: Method, round: Round, upload: Upload | Total
) -> tuple[Server, Upload | Total]:
    """What mechanisms let through; whom they left out is noted until the next round."""
    filters = [m for m in method.mechanisms if m.implements("filter_uploads")]
    if not filters or isinstance(upload, Total):
        return server, upload
    came_C = upload.ids_C
    for m in filters:
        upload = (
            m.filter_uploads(view(server, method, m.name, round), upload) if len(upload) else upload
        )
    out = came_C[~torch.isin(came_C, upload.ids_C)]
    return _put(
        server, "filter", {"left out": out, f"{METRIC}left out": torch.tensor(len(out))}
    ), upload


def _count(server: Server, tally: dict[str, int]) -> Server:
    """What the combine counts, summed over the run so far."""
    if not tally:
        return server
    before = server.state.get("combine", {})
    counts = {
        METRIC + k: torch.tensor(n + int(before.get(METRIC + k, 0))) for k, n in tally.items()
    }
    return _put(server, "combine", counts)


def _weighs(upload: Upload | Total) -> bool:
    """Whether anybody counts; weighted by examples, clients without any do not."""
    return bool((upload.weight if isinstance(upload, Total) else upload.weight_C.sum()) > 0)


def _reporters(server: Server, fleet: Fleet, method: Method, round: Round) -> tuple[Tensor, bool]:
    """Who reports, and whether that is the round's own cohort."""
    for m in method.mechanisms:
        chosen = m.select_reporters(view(server, method, m.name, round, "report"), fleet.ids_N)
        if chosen is not None:
            return chosen, False
    return round.ids_C, True


def _hear(
    server: Server, fleet: Fleet, method: Method, round: Round, reports: Upload | Total
) -> Server:
    """What reports change is published; everybody is handed anew what clients keep of it."""
    for m in method.mechanisms:
        if "report" in m.exchanges and len(reports):
            heard = total_of(reports) if m.reads_reports == "total" else reports
            around = replace(round, ids_C=reports.ids_C)
            drawer, public = m.receive_reports(
                view(server, method, m.name, around, "report"), heard
            )
            server = _put(replace(server, public={**server.public, **public}), m.name, drawer)
            if own := {k: v for k, v in public.items() if k in method.model.kept}:
                fleet.ask(Request("deliver", round.number, fleet.ids_N, Download(Sent(own))))
    return server


def _public(server: Server, method: Method) -> Sent:
    return Sent({k: v for k, v in server.public.items() if k not in method.model.kept})


def _put(server: Server, name: str, drawer: FieldDict) -> Server:
    return replace(server, state={**server.state, name: drawer})


def view(
    server: Server, method: Method, name: str, round: Round, step: str = "train"
) -> ServerView:
    memory, tried = server.state.get(name, {}), partial(_tried, server, method)
    parts = (method.model, method.objective, method.catalogue)
    return ServerView(server.public, memory, round, method.seed, name, *parts, step, tried)


def _tried(server: Server, method: Method, name: str, rows_T: Tensor, update_TD: Tensor) -> Tensor:
    """Rows of a table after a step with this update of them, [T, D]; a row that stands twice is tried twice."""
    step, table = method.server_step, server.public[name]
    if not step.by_row:
        return table[rows_T] + update_TD
    memory = server.state.get(step.name, {})
    own = {
        k: v[rows_T] if isinstance(v, Tensor) and v.shape == table.shape else v
        for k, v in memory.items()
    }
    return step.step(own, {name: table[rows_T]}, {name: update_TD})[1][name]


def start(method: Method) -> Server:
    return Server(
        method.model.public(method.catalogue.n_items, Rng.server(method.seed, 0, "public"))
    )

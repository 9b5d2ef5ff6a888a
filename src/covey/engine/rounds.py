"""One round, top to bottom."""

from dataclasses import replace

from torch import Tensor

from covey.aggregate.fold import total_of
from covey.contract.fleet import Fleet, Request
from covey.core import Answers, Download, FieldDict, Fields, Round, Sent, Upload

from .aggregation import aggregated, filtered
from .method import Method
from .server_state import Server, reported_metrics, sent_parameters, start, view

__all__ = ["Server", "admit", "enrol", "reported_metrics", "run_round", "start", "view"]


def run_round(server: Server, fleet: Fleet, method: Method, round: Round) -> tuple[Server, Round]:
    """Runs one round: the picture in `covey.contract.mechanism`, with the hooks named at the right.

    `round` has the cohort. Returns the server after it, and `round` with the clients that answered.
    """
    server = server.with_state(_states("begin_round", server, method, round))
    round = _chosen("select_cohort", server, fleet, method, round)
    if method.has_exchange("report"):
        asked = _chosen("select_reporters", server, fleet, method, round)
        reports = _exchange("report", server, fleet, method, asked)  # send, report
        answered = replace(asked, ids_C=reports.ids_C)
        server = _received(server, fleet, method, answered, reports)  # receive_reports
        round = answered if asked is round else round
    if method.solver is not None and len(round.ids_C):
        upload = _exchange("train", server, fleet, method, round)  # send, ..., protect_upload
        round = replace(round, ids_C=upload.ids_C)
        server, upload = filtered(server, method, round, upload)  # filter_uploads
        if len(upload):  # receive_uploads, adjust_update, adjust_model
            server = _uploaded(server, method, round, upload)
            server = aggregated(server, fleet, method, round, upload)
    server = server.with_state(_states("end_round", server, method, round))
    _hand_out(server, fleet, method, round)  # hand_out
    return server, round


def _exchange(step: str, server: Server, fleet: Fleet, method: Method, round: Round) -> Answers:
    """Sends the public parameters and what parts add to them; returns what the clients answer."""
    sent = {m.name: m.send(view(server, method, m.name, round, step)) for m in method.mechanisms}
    if step == "train":
        grouping = method.grouping
        sent[grouping.name] = grouping.send(view(server, method, grouping.name, round))
    extra = {name: s for name, s in sent.items() if s.shared or s.each}
    download = Download(sent_parameters(server, method), extra)
    return fleet.ask(Request(step, round.number, round.ids_C, download, method.folds(step)))


def _states(
    hook: str, server: Server, method: Method, round: Round, *more: Upload | None
) -> dict[str, FieldDict]:
    """The states that a hook of each mechanism returns; all of them see the same server."""
    views = [view(server, method, m.name, round) for m in method.mechanisms]
    pairs = zip(method.mechanisms, views, strict=True)
    return {m.name: getattr(m, hook)(v, *more) for m, v in pairs}


def _chosen(hook: str, server: Server, fleet: Fleet, method: Method, round: Round) -> Round:
    """The round with the clients that the first mechanism with a choice selects by a hook."""
    step = "report" if hook == "select_reporters" else "train"
    for m in method.mechanisms:
        see = view(server, method, m.name, round, step)
        if (chosen_C := getattr(m, hook)(see, fleet.ids_N)) is not None:
            return replace(round, ids_C=chosen_C)
    return round


def _uploaded(server: Server, method: Method, round: Round, upload: Answers) -> Server:
    """The server after mechanisms have read the single uploads."""
    for m in method.mechanisms:
        if isinstance(upload, Upload) and m.implements("receive_uploads"):
            state, public = m.receive_uploads(view(server, method, m.name, round), upload)
            server = server.publish(public).with_state({m.name: state})
    return server


def _hand_out(server: Server, fleet: Fleet, method: Method, round: Round) -> None:
    """Delivers to clients the parameters that mechanisms made for each of them."""
    for m in method.mechanisms:
        ids_C, own = m.hand_out(view(server, method, m.name, round), fleet.ids_N)
        if len(ids_C):
            fleet.ask(Request("deliver", round.number, ids_C, Download(Sent(each=dict(own)))))


def _received(server: Server, fleet: Fleet, method: Method, round: Round, sent: Answers) -> Server:
    """The server after reports; what they change is delivered to the clients that keep it."""
    for m in method.mechanisms:
        if "report" in m.exchanges and len(sent):
            read = total_of(sent) if m.reads_reports == "total" else sent
            see = view(server, method, m.name, round, "report")
            state, public = m.receive_reports(see, read)
            server = server.publish(public).with_state({m.name: state})
            _deliver(fleet, method, round.number, fleet.ids_N, public)
    return server


def _deliver(fleet: Fleet, method: Method, number: int, ids_C: Tensor, params: Fields) -> None:
    kept: FieldDict = {k: v for k, v in params.items() if k in method.model.kept}
    if kept:
        fleet.ask(Request("deliver", number, ids_C, Download(Sent(kept))))


def enrol(server: Server, fleet: Fleet, method: Method) -> Server:
    """Round 0: clients receive what they keep and send what mechanisms ask for."""
    method.check(fleet)
    round = Round(0, fleet.ids_N)
    enrolment, grouping = _join(server, fleet, method, round), method.grouping
    states = _states("init_state", server, method, round, enrolment)
    states[grouping.name] = grouping.init_state(view(server, method, grouping.name, round))
    server = replace(server, state=states)
    _hand_out(server, fleet, method, round)
    return server


def admit(server: Server, fleet: Fleet, method: Method, round_number: int, ids_C: Tensor) -> Server:
    """Enrols late joiners, `ids_C` [C], before the round in which they take part first."""
    round = Round(round_number, ids_C)
    enrolment = _join(server, fleet, method, round)
    server = server.with_state(_states("admit_clients", server, method, round, enrolment))
    _hand_out(server, fleet, method, round)
    return server


def _join(server: Server, fleet: Fleet, method: Method, round: Round) -> Upload | None:
    """Hands new clients what they keep; returns what mechanisms ask them for, None for nothing."""
    _deliver(fleet, method, round.number, round.ids_C, server.public)
    if not method.has_exchange("enrol"):
        return None
    download = Download(sent_parameters(server, method))
    enrolment = fleet.ask(Request("enrol", round.number, round.ids_C, download))
    assert isinstance(enrolment, Upload)
    return enrolment

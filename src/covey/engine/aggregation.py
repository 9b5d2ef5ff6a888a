"""From uploads to a new model: filter, group, combine, adjust, step and hand out."""

from dataclasses import replace

import torch

from covey.aggregate.fold import total_of
from covey.contract.aggregation import Group
from covey.contract.fleet import Fleet, Request
from covey.core import Answers, Download, Fields, Round, Sent, Total, Upload, below

from .method import Method
from .server_state import METRIC, Server, view


def filtered(server: Server, method: Method, round: Round, sent: Answers) -> tuple[Server, Answers]:
    """The uploads that mechanisms let through. The others' ids are kept until the next round."""
    filters = [m for m in method.mechanisms if m.implements("filter_uploads")]
    if not filters or isinstance(sent, Total):
        return server, sent
    received_C = sent.ids_C
    for m in filters:
        if len(sent):
            sent = m.filter_uploads(view(server, method, m.name, round), sent)
    out_C = received_C[~torch.isin(received_C, sent.ids_C)]
    state = {"left out": out_C, f"{METRIC}left out": torch.tensor(len(out_C))}
    return server.with_state({"filter": state}), sent


def aggregated(server: Server, fleet: Fleet, method: Method, round: Round, sent: Answers) -> Server:
    """The server after uploads; what is not public is delivered to the group's clients."""
    grouping = method.grouping
    state, groups = grouping.groups(view(server, method, grouping.name, round), sent)
    server = server.with_state({grouping.name: state})
    for group in groups:
        part = _part(method, group, sent)
        weight = part.weight if isinstance(part, Total) else part.weight_C.sum()
        if not bool(weight > 0):  # weighted by examples, clients without any do not count
            continue
        server, params = _stepped(server, method, round, group, part)
        if group.public:
            server = server.publish(params)
        else:
            ids_C = round.ids_C if group.rows is None else sent.ids_C[group.rows]
            fleet.ask(Request("deliver", round.number, ids_C, Download(Sent(dict(params)))))
    return server


def _part(method: Method, group: Group, upload: Answers) -> Answers:
    part = upload
    if group.rows is not None and isinstance(upload, Upload):
        sums = method.combine.reads_uploads == "total"
        part = total_of(upload, group.rows) if sums else upload.take(group.rows)
    if group.weight is not None and isinstance(part, Upload):
        part = replace(part, weight_C=group.weight)
    return part


def _stepped(
    server: Server, method: Method, round: Round, group: Group, part: Answers
) -> tuple[Server, Fields]:
    """One group's parameters after the server's step, and the server with the parts' new states."""
    update, model = method.combine.combine(part, group.names)
    if tally := method.combine.tally(part, group.names):
        before = server.state.get("combine", {})
        counts = {METRIC + k: n + int(before.get(METRIC + k, 0)) for k, n in tally.items()}
        state = {k: torch.tensor(n) for k, n in counts.items()}
        server = server.with_state({"combine": state})
    for m in method.mechanisms:
        update = m.adjust_update(view(server, method, m.name, round), update)
    step = method.server_step
    name, before = group.prefix + step.name, {**server.public, **below(server.public, group.prefix)}
    state, stepped = step.step(server.state.get(name, {}), before, update)
    server = server.with_state({name: state})
    params = {**{k: stepped[k] for k in update}, **model}
    for m in method.mechanisms:
        state, params = m.adjust_model(view(server, method, m.name, round), params)
        server = server.with_state({m.name: state})
    return server, {group.prefix + k: v for k, v in params.items()}

"""New interactions after training, where the model follows from sums over clients.

EASE by sums takes the parts of new users and the changes of known ones (`membership`), popularity
by noisy sums the sum of new users. Spectral keeps no sum: all clients take part in one more.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from covey.contract.fleet import Fleet
from covey.core.errors import CoveyError
from covey.core.messages import Round
from covey.core.ragged import Ragged
from covey.data.split import assigned
from covey.engine.method import Method
from covey.engine.rounds import run_round
from covey.evaluate.ranking import distinct, nothing
from covey.methods.ease_sums import GramTiles
from covey.methods.private_sums import PrivateCount
from covey.methods.spectral import SubspaceIteration
from covey.run.assemble import clients_of, device_of, method_of, server_side_of, simulation_of

from .catalogue_growth import prepared_again, with_rows
from .membership import join, update
from .ranking import Ranking
from .scorers import DeviceScorer, Scorer


def with_interactions(old: Ranking, interactions: Iterable[tuple[Any, Any]]) -> Ranking:
    """Returns what ranks after more interactions; see `Recommender.partial_fit`."""
    part, n = _part(old), old.prepared.split.n_users
    new, pairs = _numbered(old, interactions)
    rows = with_rows(assigned(old.prepared.dataset, old.config.split), pairs, users=new)
    made = replace(old, **prepared_again(old.config, rows))
    new_C = torch.arange(n, n + len(new), device=device_of(old.config))
    changed_C = torch.tensor(sorted({user for user, _ in pairs if user < n})).to(new_C)
    if isinstance(part, GramTiles):
        lists = Ragged.cat([distinct(old.prepared.split.train), nothing(len(new))])
        before = replace(
            made, prepared=replace(made.prepared, avoided=lists)
        )  # to send differences
        scorer: Scorer = old.scorer
        for data, change, ids_C in ((before, update, changed_C), (made, join, new_C)):
            scorer, method, side = _moved(replace(data, scorer=scorer))
            if len(ids_C):
                server = change(scorer.server, side, method, scorer.round + 1, ids_C)
                scorer = replace(scorer, server=server, round=scorer.round + part.tiles)
        return replace(made, scorer=scorer)
    scorer, method, side = _moved(made)
    server, ids_C, rounds = scorer.server, scorer.fleet.ids_N, [part.sums]
    if isinstance(part, PrivateCount):
        if len(changed_C):
            why = f"the budget of {len(changed_C)} of these users is spent"
            raise CoveyError(f"partial_fit: {why}; give interactions of new users alone")
        ids_C, method = new_C, replace(method, seed=method.seed + scorer.round)  # for new noise
    elif part.choose:
        rounds += [part.sums + 1]
    for number in rounds:
        server, _ = run_round(server, side, method, Round(number, ids_C))
    if isinstance(part, PrivateCount):  # over 0, so that all users get the same ranking
        count_I1 = scorer.server.public["items"] + server.public["items"]
        server = server.publish({"items": count_I1 - count_I1.min() + 1})
    return replace(made, scorer=replace(scorer, server=server, round=scorer.round + len(rounds)))


def _part(old: Ranking) -> GramTiles | PrivateCount | SubspaceIteration:
    """The only part of a method that trains by sums."""
    if not {"pooled", "attack", "solver"} & old.config.tree.keys():
        mechanisms = method_of(old.config, old.prepared.catalogue).mechanisms
        sums = GramTiles | PrivateCount | SubspaceIteration
        if len(mechanisms) == 1 and isinstance(part := mechanisms[0], sums):
            return part
    why = "this run does not learn by sums that more interactions can be added to"
    remedy = "fit again with them, or use spectral, ease-sums or popularity-private"
    raise CoveyError(f"partial_fit: {why}; {remedy}")


def _numbered(
    old: Ranking, interactions: Iterable[tuple[Any, Any]]
) -> tuple[list[Any], list[tuple[int, int]]]:
    """The new users, and the pairs that the dataset does not have, each once."""
    users, data, pairs = dict(old.numbers[0]), old.prepared.dataset, dict[tuple[int, int], None]()
    new: dict[str, Any] = {}
    for user, item in interactions:
        if str(user) not in users:
            new[str(user)] = user
        pairs[users.setdefault(str(user), len(users)), old.item(item)] = None
    own_E = data.user_E.astype(np.int64) * data.n_items + data.item_E
    known = np.isin([user * data.n_items + item for user, item in pairs], own_E)
    if known.all():
        raise CoveyError("partial_fit: the dataset has all of these interactions; give new ones")
    return list(new.values()), [pair for pair, there in zip(pairs, known) if not there]


def _moved(made: Ranking) -> tuple[DeviceScorer, Method, Fleet]:
    """The scorer with the clients of this data, the method, and what the server sees of them."""
    config, prepared, scorer = made.config, made.prepared, made.scorer
    assert isinstance(scorer, DeviceScorer)
    method, n = method_of(config, prepared.catalogue), prepared.split.n_users
    clients = clients_of(config, prepared, method)
    fleet = simulation_of(config, clients)
    state = scorer.fleet.state() | {"present": torch.tensor(n)}
    sends = {k: F.pad(v, (0, n - len(v))) for k, v in state.items() if k.startswith("meter/sends/")}
    fleet.load(state | sends)
    side = server_side_of(config, fleet, clients.program)
    return replace(scorer, clients=clients, fleet=fleet), method, side

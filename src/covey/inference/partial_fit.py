"""New interactions after training, where the model follows from sums over clients.

EASE by sums takes the parts of new users and the changes of known ones (`membership`), popularity
by noisy sums the sum of new users. Spectral keeps no sum: all clients take part in one more.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

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
from covey.run.assemble import Prepared, clients_of, method_of, server_side_of, simulation_of
from covey.run.config.schema import Config

from .catalogue_growth import Numbers, prepared_again, with_rows
from .membership import join, update
from .scorers import DeviceScorer, Scorer

Part = GramTiles | PrivateCount | SubspaceIteration
Pairs = Iterable[tuple[Any, Any]]


def with_interactions(
    scorer: Scorer, config: Config, prepared: Prepared, numbers: Numbers, interactions: Pairs
) -> tuple[Config, Prepared, Scorer]:
    """Returns what `Recommender.partial_fit` changes; `numbers` are those of users and items."""
    part, n = _part(config, prepared), prepared.split.n_users
    assert isinstance(scorer, DeviceScorer)
    new, pairs = _numbered(prepared, numbers, interactions)
    rows = with_rows(assigned(prepared.dataset, config.split), pairs, users=new)
    config, made = prepared_again(config, rows)
    changed_C = torch.tensor(sorted({user for user, _ in pairs if user < n}), dtype=torch.int64)
    new_C = torch.arange(n, n + len(new))
    if isinstance(part, GramTiles):
        lists = Ragged.cat([distinct(prepared.split.train), nothing(len(new))])
        before = replace(made, avoid=lists)  # of which clients send the difference
        for data, change, ids_C in ((before, update, changed_C), (made, join, new_C)):
            scorer, method, side = _moved(scorer, config, data)
            if len(ids_C):
                server = change(scorer.server, side, method, scorer.round + 1, ids_C)
                scorer = replace(scorer, server=server, round=scorer.round + part.tiles)
        return config, made, scorer
    scorer, method, side = _moved(scorer, config, made)
    before_I1, server, ids_C = scorer.server.public["items"], scorer.server, scorer.fleet.ids_N
    numbers_of_rounds = (part.sums, part.sums + 1) if getattr(part, "choose", ()) else (part.sums,)
    if isinstance(part, PrivateCount):
        if len(changed_C):
            why = f"the budget of {len(changed_C)} of these users is spent"
            raise CoveyError(f"partial_fit: {why}; give interactions of new users alone")
        ids_C, method = new_C, replace(method, seed=method.seed + scorer.round)  # for new noise
    for number in numbers_of_rounds:
        server, _ = run_round(server, side, method, Round(number, ids_C))
    if isinstance(part, PrivateCount):  # over 0, so that all users get the same ranking
        count_I1 = before_I1 + server.public["items"]
        server = server.publish({"items": count_I1 - count_I1.min() + 1})
    after = scorer.round + len(numbers_of_rounds)
    return config, made, replace(scorer, server=server, round=after)


def _part(config: Config, prepared: Prepared) -> Part:
    """The only part of a method that trains by sums."""
    method = None if "pooled" in config.tree else method_of(config, prepared.catalogue)
    if method and not method.solver and len(method.mechanisms) == 1 and "attack" not in config.tree:
        part = method.mechanisms[0]
        if isinstance(part, Part):
            return part
    why = "this run does not learn by sums that more interactions can be added to"
    remedy = "fit again with them, or use spectral, ease-sums or popularity-private"
    raise CoveyError(f"partial_fit: {why}; {remedy}")


def _numbered(
    prepared: Prepared, numbers: Numbers, interactions: Pairs
) -> tuple[list[Any], list[tuple[int, int]]]:
    """The new users, and the pairs that the dataset does not have, each once."""
    users, new, data = dict(numbers[0]), list[Any](), prepared.dataset
    pairs = dict[tuple[int, int], None]()
    for user, item in interactions:
        if str(item) not in numbers[1]:
            remedy = "make it known with add_items, or fit again"
            raise CoveyError(f"partial_fit: there is no item {str(item)!r}; {remedy}")
        if users.setdefault(str(user), len(users)) == data.n_users + len(new):
            new.append(user)
        pairs[users[str(user)], numbers[1][str(item)]] = None
    there = set(zip(data.user_E.tolist(), data.item_E.tolist()))
    if not (fresh := [pair for pair in pairs if pair not in there]):
        raise CoveyError("partial_fit: the dataset has all of these interactions; give new ones")
    return new, fresh


def _moved(
    scorer: DeviceScorer, config: Config, prepared: Prepared
) -> tuple[DeviceScorer, Method, Fleet]:
    """The scorer with the clients of other data, the method, and what the server sees of them."""
    method, n = method_of(config, prepared.catalogue), prepared.split.n_users
    clients = clients_of(config, prepared, method)
    fleet, state = (
        simulation_of(config, clients),
        scorer.fleet.state() | {"present": torch.tensor(n)},
    )
    sends = {k: F.pad(v, (0, n - len(v))) for k, v in state.items() if k.startswith("meter/sends/")}
    fleet.load(state | sends)
    side = server_side_of(config, fleet, clients.program)
    return replace(scorer, clients=clients, fleet=fleet), method, side

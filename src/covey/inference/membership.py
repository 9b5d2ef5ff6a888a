"""New interactions, and clients that join, update and leave, after training by sums.

A client that joins sends its part of the sums, one that updates the difference, and one that leaves
minus its part, so a client that left is forgotten, up to rounding. Each tile is one sum in one
round; the server records which clients are in which tile, so a repeated request asks only for what
is missing. Popularity by noisy sums takes new users only. Spectral keeps no sum: all clients take
part in one more.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.fleet import Fleet, Request
from covey.core import CoveyError, Download, Ragged, Round, Sent, Total
from covey.data.split import assigned
from covey.engine.method import Method
from covey.engine.rounds import Server, run_round
from covey.evaluate.ranking import distinct, nothing
from covey.methods import ease_sums
from covey.methods.ease_sums import JOIN, LEAVE, UPDATE, GramTiles
from covey.methods.private_sums import PrivateCount
from covey.methods.spectral import SubspaceIteration
from covey.run.assemble import clients_of, device_of, method_of, server_side_of, simulation_of

from .new_items import Pairs, prepared_again, with_rows
from .ranking import Ranking
from .scorers import DeviceScorer, Scorer


def with_interactions(old: Ranking, interactions: Pairs) -> Ranking:
    """Returns what ranks after more interactions; see `Recommender.partial_fit`."""
    part, n = _summing(old), old.prepared.split.n_users
    new, pairs = _numbered(old, interactions)
    rows = with_rows(assigned(old.prepared.dataset, old.config.split), pairs, users=new)
    made = replace(old, **prepared_again(old.config, rows))
    new_C = torch.arange(n, n + len(new), device=device_of(old.config))
    changed_C = torch.tensor(sorted({user for user, _ in pairs if user < n})).to(new_C)
    if isinstance(part, GramTiles):
        lists = Ragged.cat([distinct(old.prepared.split.train), nothing(len(new))])
        # To send differences.
        before = replace(made, prepared=replace(made.prepared, avoided=lists))
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


def _summing(old: Ranking) -> GramTiles | PrivateCount | SubspaceIteration:
    """The only part of a method that trains by sums."""
    if not {"pooled", "attack", "solver"} & old.config.tree.keys():
        mechanisms = method_of(old.config, old.prepared.catalogue).mechanisms
        sums = GramTiles | PrivateCount | SubspaceIteration
        if len(mechanisms) == 1 and isinstance(part := mechanisms[0], sums):
            return part
    why = "this run does not learn by sums that more interactions can be added to"
    remedy = "fit again with them, or use spectral, ease-sums or popularity-private"
    raise CoveyError(f"partial_fit: {why}; {remedy}")


def _numbered(old: Ranking, interactions: Pairs) -> tuple[list[Any], list[tuple[int, int]]]:
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


def join(server: Server, fleet: Fleet, method: Method, number: int, ids_C: Tensor) -> Server:
    """Adds the parts of the clients `ids_C` [C] to every tile that they are not in.

    The method trains by sums, as ease-sums does; `number` is that of the first round, and every
    tile takes one. Returns the server's record with the changed sums, and the model that follows.
    """
    return _change(server, fleet, method, number, ids_C, JOIN)


def update(server: Server, fleet: Fleet, method: Method, number: int, ids_C: Tensor) -> Server:
    """Adds the changes of clients' lists; `avoid` of their data is the list before. See `join`."""
    return _change(server, fleet, method, number, ids_C, UPDATE)


def leave(server: Server, fleet: Fleet, method: Method, number: int, ids_C: Tensor) -> Server:
    """Subtracts the parts of clients from every tile that they are in. See `join`."""
    return _change(server, fleet, method, number, ids_C, LEAVE)


def members(server: Server, method: Method) -> tuple[Tensor, Tensor]:
    """Returns the clients that are in all tiles, and those in some tiles only."""
    part = _tiles(method)
    pair_M2 = server.state[part.name]["in"]
    return ease_sums.whole(pair_M2, part.tiles), ease_sums.partly(pair_M2, part.tiles)


def _change(
    server: Server, fleet: Fleet, method: Method, number: int, ids_C: Tensor, change: int
) -> Server:
    part = _tiles(method)
    state = dict(server.state[part.name])
    gram_II, pair_M2 = state["gram"].clone(), state["in"]
    _check(pair_M2, part.tiles, ids_C, change)
    answered = 0
    for tile in range(part.tiles):
        there_C = torch.isin(ids_C, ease_sums.in_tile(pair_M2, tile))
        asked_C = ids_C[~there_C if change == JOIN else there_C]  # still to be changed
        if not len(asked_C):
            continue
        start, stop = ease_sums.span_of(tile + 1, part.tiles, len(gram_II))
        about = Sent({"tile": torch.tensor([start, stop]), "change": torch.tensor(change)})
        download = Download(Sent({"items": server.public["items"]}), {part.name: about})
        total = fleet.ask(Request("report", number + tile, asked_C, download, fold=True))
        assert isinstance(total, Total)
        if change == UPDATE and len(total) < len(asked_C):  # tiles would disagree about a list
            wrong = "not every client answered, and nothing was changed"
            raise CoveyError(f"{wrong}; let them leave, and join again")
        if len(total):
            gram_II[:, start:stop] += total.extra[part.name]["rows"].double()
            pairs_C2 = torch.stack([torch.full_like(total.ids_C, tile), total.ids_C], 1)
            if change == JOIN:
                pair_M2 = torch.cat([pair_M2, pairs_C2.to(pair_M2)])
            elif change == LEAVE:
                gone_M = torch.isin(pair_M2[:, 1], total.ids_C.to(pair_M2))
                pair_M2 = pair_M2[~gone_M | (pair_M2[:, 0] != tile)]
            answered += len(total)
    if not answered:
        why = "no sum came about, and nothing was changed"
        raise CoveyError(f"{why}; a secure one needs three clients at least")
    state |= {"gram": gram_II, **ease_sums.listed(pair_M2, part.tiles)}
    public = {**server.public, "weight": part.solved(gram_II).to(server.public["weight"])}
    return replace(server, public=public, state={**server.state, part.name: state})


def _tiles(method: Method) -> GramTiles:
    part = next((m for m in method.mechanisms if isinstance(m, GramTiles)), None)
    if part is None:
        wrong = "only sums of fixed parts can be changed, as those of ease-sums"
        raise CoveyError(f"{wrong}; run the sums again")
    return part


def _check(pair_M2: Tensor, tiles: int, ids_C: Tensor, change: int) -> None:
    if len(ids_C.unique()) < len(ids_C):
        raise CoveyError("a client is named twice; name each once")
    whole_C = torch.isin(ids_C, ease_sums.whole(pair_M2, tiles))
    some_C = torch.isin(ids_C, pair_M2[:, 1])
    if change == JOIN and bool(whole_C.any()):
        why = f"client {int(ids_C[whole_C][0])} is in the sum already"
        raise CoveyError(f"{why}; let it update, or leave first")
    if change == LEAVE and not bool(some_C.all()):
        raise CoveyError(f"client {int(ids_C[~some_C][0])} is not in the sum; let it join first")
    if change == UPDATE and not bool(whole_C.all()):
        why = f"client {int(ids_C[~whole_C][0])} is not in the sum, or not in all of it"
        raise CoveyError(f"{why}; let it join first")

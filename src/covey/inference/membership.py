"""Clients that join, update and leave after training by sums.

A client that joins sends its part of the sums, one that updates the difference, and one that leaves
minus its part. The sums are then those over the present clients, so a client that left is
forgotten, up to rounding. Such a report is metered, declared and summed like any other. Every tile
is one sum in one round, and a client may drop out of each. The server records which clients are in
which tile, so a repeated request asks only for what is still missing.
"""

from dataclasses import replace

import torch
from torch import Tensor

from covey.contract.fleet import Fleet, Request
from covey.core.errors import CoveyError
from covey.core.messages import Download, Sent, Total
from covey.engine.method import Method
from covey.engine.rounds import Server
from covey.methods.ease_sums import (
    JOIN,
    LEAVE,
    UPDATE,
    GramTiles,
    in_tile,
    listed,
    partly,
    span_of,
    whole,
)


def join(server: Server, fleet: Fleet, method: Method, number: int, ids_C: Tensor) -> Server:
    """Adds the parts of clients to every tile that they are not in.

    Args:
        server: The server's record.
        fleet: The fleet with these clients.
        method: A method that trains by sums, such as ease-sums.
        number: The number of the first round; every tile takes one.
        ids_C: The ids [C] of the clients.

    Returns:
        The server's record with the changed sums, and the model that follows from them.
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
    part = _part(method)
    pair_M2 = server.state[part.name]["in"]
    return whole(pair_M2, part.tiles), partly(pair_M2, part.tiles)


def _change(
    server: Server, fleet: Fleet, method: Method, number: int, ids_C: Tensor, change: int
) -> Server:
    part = _part(method)
    state = dict(server.state[part.name])
    gram_II, pair_M2 = state["gram"].clone(), state["in"]
    _check(pair_M2, part.tiles, ids_C, change)
    answered = 0
    for tile in range(part.tiles):
        asked_C = _missing(pair_M2, tile, ids_C, change)
        if not len(asked_C):
            continue
        start, stop = span_of(tile + 1, part.tiles, len(gram_II))
        about = Sent({"tile": torch.tensor([start, stop]), "change": torch.tensor(change)})
        download = Download(Sent({"items": server.public["items"]}), {part.name: about})
        total = fleet.ask(Request("report", number + tile, asked_C, download, fold=True))
        assert isinstance(total, Total)
        if change == UPDATE and len(total) < len(asked_C):  # tiles would disagree about a list
            raise CoveyError(
                "not every client answered, and nothing was changed; let them leave, and join again"
            )
        if len(total):
            gram_II[:, start:stop] += total.extra[part.name]["rows"].double()
            pair_M2 = _recorded(pair_M2, tile, total.ids_C, change)
            answered += len(total)
    if not answered:
        why = "no sum came about, and nothing was changed"
        raise CoveyError(f"{why}; a secure one needs three clients at least")
    state |= {"gram": gram_II, **listed(pair_M2, part.tiles)}
    public = {**server.public, "weight": part.solved(gram_II).to(server.public["weight"])}
    return replace(server, public=public, state={**server.state, part.name: state})


def _part(method: Method) -> GramTiles:
    part = next((m for m in method.mechanisms if isinstance(m, GramTiles)), None)
    if part is None:
        raise CoveyError(
            "only sums of fixed parts can be changed, as those of ease-sums; run the sums again"
        )
    return part


def _missing(pair_M2: Tensor, tile: int, ids_C: Tensor, change: int) -> Tensor:
    """Those of the clients whose part of a tile is still to be added, changed or subtracted."""
    there_C = torch.isin(ids_C, in_tile(pair_M2, tile))
    return ids_C[~there_C if change == JOIN else there_C]


def _recorded(pair_M2: Tensor, tile: int, ids_C: Tensor, change: int) -> Tensor:
    """The clients of all tiles [M, 2] after a tile was changed."""
    pairs = torch.stack([torch.full_like(ids_C, tile), ids_C], 1).to(pair_M2)
    if change == LEAVE:
        gone_M = (pair_M2[:, 0] == tile) & torch.isin(pair_M2[:, 1], ids_C.to(pair_M2))
        return pair_M2[~gone_M]
    return torch.cat([pair_M2, pairs]) if change == JOIN else pair_M2


def _check(pair_M2: Tensor, tiles: int, ids_C: Tensor, change: int) -> None:
    if len(ids_C.unique()) < len(ids_C):
        raise CoveyError("a client is named twice; name each once")
    whole_C, some_C = torch.isin(ids_C, whole(pair_M2, tiles)), torch.isin(ids_C, pair_M2[:, 1])
    if change == JOIN and bool(whole_C.any()):
        why = f"client {int(ids_C[whole_C][0])} is in the sum already"
        raise CoveyError(f"{why}; let it update, or leave first")
    if change == LEAVE and not bool(some_C.all()):
        raise CoveyError(f"client {int(ids_C[~some_C][0])} is not in the sum; let it join first")
    if change == UPDATE and not bool(whole_C.all()):
        why = f"client {int(ids_C[~whole_C][0])} is not in the sum, or not in all of it"
        raise CoveyError(f"{why}; let it join first")

"""Clients that come, change and go after the sums were made: each sends its part, the difference, or minus its part.

What remains is the sum over those who are there, so a client that left is forgotten, to rounding. Its
farewell is a report like any other: metered, declared, summed with those of others who leave. Every tile is a
sum of its own, in a round of its own, and a client may drop out of any. The server knows who is in which tile,
so that the same request again asks for what is still missing and for nothing twice.
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
    """Clients add their part of every tile that they are not in; `number` and those after it are the rounds."""
    return _change(server, fleet, method, number, ids_C, JOIN)


def update(server: Server, fleet: Fleet, method: Method, number: int, ids_C: Tensor) -> Server:
    """Clients whose list changed send the difference; `avoid` of their data is the list as it was."""
    return _change(server, fleet, method, number, ids_C, UPDATE)


def leave(server: Server, fleet: Fleet, method: Method, number: int, ids_C: Tensor) -> Server:
    """Clients take their part out of every tile that they are in."""
    return _change(server, fleet, method, number, ids_C, LEAVE)


def members(server: Server, method: Method) -> tuple[Tensor, Tensor]:
    """Clients that are in the whole sum, and those in some of its tiles only."""
    part = _part(method)
    pair_M2 = server.state[part.name]["in"]
    return whole(pair_M2, part.tiles), partly(pair_M2, part.tiles)


def _change(
    server: Server, fleet: Fleet, method: Method, number: int, ids_C: Tensor, change: int
) -> Server:
    part = _part(method)
    memory = dict(server.state[part.name])
    gram_II, pair_M2 = memory["gram"].clone(), memory["in"]
    _check(pair_M2, part.tiles, ids_C, change)
    answered = 0
    for tile in range(part.tiles):
        asked_C = _asked(pair_M2, tile, ids_C, change)
        if not len(asked_C):
            continue
        start, stop = span_of(tile + 1, part.tiles, len(gram_II))
        about = Sent({"tile": torch.tensor([start, stop]), "change": torch.tensor(change)})
        download = Download(Sent({"items": server.public["items"]}), {part.name: about})
        total = fleet.ask(Request("report", number + tile, asked_C, download, fold=True))
        assert isinstance(total, Total)
        if change == UPDATE and len(total) < len(
            asked_C
        ):  # a list that is new in some tiles only is nobody's
            raise CoveyError(
                "not every client answered, and nothing was changed; let them leave, and join again"
            )
        if len(total):
            gram_II[:, start:stop] += total.extra[part.name]["rows"].double()
            pair_M2, answered = _noted(pair_M2, tile, total.ids_C, change), answered + len(total)
    if not answered:
        raise CoveyError(
            "no sum came about, and nothing was changed; a secure one needs three clients at least"
        )
    memory |= {"gram": gram_II, **listed(pair_M2, part.tiles)}
    public = {**server.public, "weight": part.solved(gram_II).to(server.public["weight"])}
    return replace(server, public=public, state={**server.state, part.name: memory})


def _part(method: Method) -> GramTiles:
    part = next((m for m in method.mechanisms if isinstance(m, GramTiles)), None)
    if part is None:
        raise CoveyError(
            "only sums of fixed parts can be changed, as those of ease-sums; run the sums again"
        )
    return part


def _asked(pair_M2: Tensor, tile: int, ids_C: Tensor, change: int) -> Tensor:
    """Those who come and are not there yet, or go and still are."""
    there_C = torch.isin(ids_C, in_tile(pair_M2, tile))
    return ids_C[~there_C if change == JOIN else there_C]


def _noted(pair_M2: Tensor, tile: int, ids_C: Tensor, change: int) -> Tensor:
    pairs = torch.stack([torch.full_like(ids_C, tile), ids_C], 1).to(pair_M2)
    if change == LEAVE:
        gone_M = (pair_M2[:, 0] == tile) & torch.isin(pair_M2[:, 1], ids_C.to(pair_M2))
        return pair_M2[~gone_M]
    return torch.cat([pair_M2, pairs]) if change == JOIN else pair_M2


def _check(pair_M2: Tensor, tiles: int, ids_C: Tensor, change: int) -> None:
    if len(ids_C.unique()) < len(ids_C):
        raise CoveyError("a client stands twice in the list; name each once")
    whole_C, some_C = torch.isin(ids_C, whole(pair_M2, tiles)), torch.isin(ids_C, pair_M2[:, 1])
    if change == JOIN and bool(whole_C.any()):
        raise CoveyError(
            f"client {int(ids_C[whole_C][0])} is in the sum already; let it update, or leave first"
        )
    if change == LEAVE and not bool(some_C.all()):
        raise CoveyError(f"client {int(ids_C[~some_C][0])} is not in the sum; let it join first")
    if change == UPDATE and not bool(whole_C.all()):
        raise CoveyError(
            f"client {int(ids_C[~whole_C][0])} is not in the sum, or not in all of it; let it join first"
        )

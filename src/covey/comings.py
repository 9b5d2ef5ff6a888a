"""Clients that come, change and go after the sums were made: each sends its part, the difference, or minus its part.

What remains is the sum over those who are there, so a client that left is forgotten, to rounding. Its
farewell is a report like any other: metered, declared, summed with those of others who leave.
"""

from dataclasses import replace

import torch
from torch import Tensor

from .core import CoveyError, Download, Sent, Total
from .methods.ease_sums import JOIN, LEAVE, UPDATE, GramTiles, span_of
from .server import Fleet, Method, Server


def join(server: Server, fleet: Fleet, method: Method, number: int, ids_C: Tensor) -> Server:
    """Clients that were not there add their part."""
    return _change(server, fleet, method, number, ids_C, JOIN)


def update(server: Server, fleet: Fleet, method: Method, number: int, ids_C: Tensor) -> Server:
    """Clients whose list changed send the difference; `avoid` of their data is the list as it was."""
    return _change(server, fleet, method, number, ids_C, UPDATE)


def leave(server: Server, fleet: Fleet, method: Method, number: int, ids_C: Tensor) -> Server:
    """Clients take their part out again."""
    return _change(server, fleet, method, number, ids_C, LEAVE)


def _change(server: Server, fleet: Fleet, method: Method, number: int, ids_C: Tensor, change: int) -> Server:
    part = next((m for m in method.mechanisms if isinstance(m, GramTiles)), None)
    if part is None:
        raise CoveyError("only sums of fixed parts can be changed, as those of ease-sums; run the sums again")
    memory = dict(server.memory[part.name])
    _check(memory["members"], ids_C, change)
    gram_II = memory["gram"].clone()
    for tile in range(1, part.tiles + 1):
        start, stop = span_of(tile, part.tiles, len(gram_II))
        about = Sent({"tile": torch.tensor([start, stop]), "change": torch.tensor(change)})
        download = Download(Sent({"items": server.public["items"]}), {part.name: about})
        total = fleet.ask("report", number, ids_C, download, fold=True)
        if not isinstance(total, Total) or len(total) < len(ids_C):
            raise CoveyError("not every client answered, and nothing was changed; ask again")
        gram_II[:, start:stop] += total.extra[part.name]["rows"].double()
    memory["gram"] = gram_II
    memory["members"] = _members(memory["members"], ids_C, change)
    public = {**server.public, "weight": part.solved(gram_II).to(server.public["weight"])}
    return replace(server, public=public, memory={**server.memory, part.name: memory})


def _check(members_N: Tensor, ids_C: Tensor, change: int) -> None:
    there_C = torch.isin(ids_C, members_N)
    if len(ids_C.unique()) < len(ids_C):
        raise CoveyError("a client stands twice in the list; name each once")
    if change == JOIN and bool(there_C.any()):
        raise CoveyError(f"client {int(ids_C[there_C][0])} is in the sum already; let it update, or leave first")
    if change != JOIN and not bool(there_C.all()):
        raise CoveyError(f"client {int(ids_C[~there_C][0])} is not in the sum; let it join first")


def _members(members_N: Tensor, ids_C: Tensor, change: int) -> Tensor:
    if change == LEAVE:
        return members_N[~torch.isin(members_N, ids_C)]
    return torch.cat([members_N, ids_C.to(members_N)]).unique()

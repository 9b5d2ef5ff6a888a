"""The server's state, which a checkpoint holds, and what a part may see of it."""

from dataclasses import dataclass, field, replace
from functools import partial

from torch import Tensor

from covey.contract.views import ServerView
from covey.core import FieldDict, Fields, Rng, Round, Sent, below

from .method import Method

METRIC = "tell/"  # begins the names of the numbers in a part's state that are written to the log


@dataclass(frozen=True)
class Server:
    """All that survives a round on the server."""

    public: Fields  # the public parameters
    state: dict[str, FieldDict] = field(default_factory=dict)  # of each part, by its name

    def publish(self, params: Fields) -> "Server":
        """The server with other values of some public parameters."""
        return replace(self, public={**self.public, **params})

    def with_state(self, states: dict[str, FieldDict]) -> "Server":
        """The server with new states of some parts."""
        return replace(self, state={**self.state, **states})


def start(method: Method) -> Server:
    """The server before round 0, with the model's first public parameters."""
    rng = Rng.server(method.seed, 0, "public")
    return Server(method.model.public(method.catalogue.n_items, rng))


def view(
    server: Server, method: Method, name: str, round: Round, step: str = "train"
) -> ServerView:
    """The server as the part of this name sees it; `ServerView` explains the arguments."""
    state, preview = server.state.get(name, {}), partial(_previewed, server, method)
    parts = (method.model, method.objective, method.catalogue)
    return ServerView(server.public, state, round, method.seed, name, *parts, step, preview)


def _previewed(server: Server, method: Method, key: str, rows_T: Tensor, by_TD: Tensor) -> Tensor:
    """Rows [T, D] of a table after a server step, each by itself, even if a row is named twice."""
    step, table = method.server_step, server.public[key]
    if not step.by_row:
        return table[rows_T] + by_TD
    state = dict(server.state.get(step.name, {}))
    like = (k for k, v in state.items() if isinstance(v, Tensor) and v.shape == table.shape)
    state |= {k: state[k][rows_T] for k in like}
    return step.step(state, {key: table[rows_T]}, {key: by_TD})[1][key]


def sent_parameters(server: Server, method: Method) -> Sent:
    """The public parameters that every exchange sends: all but those that clients keep."""
    return Sent({k: v for k, v in server.public.items() if k not in method.model.kept})


def reported_metrics(server: Server) -> dict[str, dict[str, float]]:
    """The metrics of the last round, by part: single numbers of its state under `tell/`."""
    out = {}
    for name, state in server.state.items():
        if metrics := below(state, METRIC):
            out[name] = {k: float(v) for k, v in sorted(metrics.items())}
    return out

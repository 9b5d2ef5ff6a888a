"""MetaMF (Lin et al., Meta Matrix Factorization for Federated Rating Predictions, SIGIR 2020).

The server holds a vector of each user, from which a meta network makes that user's item table, of
low rank, and rating network. Clients upload gradients with respect to these, and the server
back-propagates them. It sends all clients the output layer that makes the tables, and each client
the features from which the client computes its own. Shape suffixes: K = numbers of a client's
network, H = hidden units of the meta network, E = rank, P = participants.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.aggregate.step import Adam, Add
from covey.core import CoveyError, FieldDict, Fields, Rng, Rows, Upload, below, positive
from covey.mechanism import History, Mechanism, ServerView
from covey.models.base import linear

META = "meta/"  # the prefix of the parameters of the meta network in the server's state
AT_ONCE = 32  # clients whose tables are one matrix product; fixed, as its bits depend on it
# The parts of a client's network, and the hidden layer of the meta network that makes each.
HEADS = {"right": "rows", "w1": "first", "b1": "first", "w2": "second", "b2": "second"}
LAYERS = ("rows", "first", "second")


@dataclass(frozen=True)
class MetaMF:
    """Rates an item by ReLU(l R W1 + b1) W2 + b2, where l is the item's row of the client's table.

    A client receives its network [R, W1, b1, W2, b2], as one vector, and its features. It trains an
    offset to the network, at first 0, so that its upload is a gradient.
    """

    dim: int = 32  # s, width of the item vectors
    rank: int = 8  # of the item table, whose rows l have this width
    units: int = 8  # of the hidden layer of the rating network
    features: int = 512  # hidden units of the meta network
    shared: ClassVar[tuple[str, ...]] = ("items", "offset")
    kept: ClassVar[tuple[str, ...]] = ("network", "features")
    tuned: ClassVar[tuple[str, ...]] = ()
    uploaded: ClassVar[tuple[str, ...]] = ()
    tables: ClassVar[tuple[str, ...]] = ("items",)
    sequential: ClassVar[bool] = False
    stochastic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive("model", dim=self.dim, rank=self.rank, units=self.units, features=self.features)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the parts of a client's network."""
        first, second = (self.dim, self.units), (self.units, 1)
        return dict(right=(self.rank, self.dim), w1=first, b1=first[1:], w2=second, b2=second[1:])

    def public(self, n_items: int, rng: Rng) -> Fields:
        """The output layer, its bias last; the rest, at first 0, is for a client without vector."""
        weight_HT = xavier(rng.fold("output"), self.features, n_items * self.rank)
        none_K = torch.zeros(sum(map(prod, self.shapes.values())))
        items, features = torch.zeros(n_items, self.rank), torch.zeros(self.features)
        own = {"items": items, "features": features, "network": none_K}
        return {"output": F.pad(weight_HT.mT, (0, 1)), "offset": none_K, **own}

    def private(self, rng: Rng, start: Rng) -> Fields:
        """Nothing of its own: the server hands out a network and features."""
        first = self.public(1, start)
        return {k: first[k].repeat(len(rng.key_C), 1) for k in self.kept}

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        return params["network"]

    def score(self, params: Fields, u: Tensor, v_CLD: Tensor) -> Tensor:
        network_CK = params["network"] + params["offset"]
        parts = network_CK.split([prod(shape) for shape in self.shapes.values()], 1)
        named = zip(self.shapes.items(), parts, strict=True)
        net = {k: part.unflatten(1, shape) for (k, shape), part in named}
        h_CLU = linear(v_CLD, net["right"] @ net["w1"], net["b1"]).relu()
        return (h_CLU * net["w2"].mT).sum(-1) + net["b2"]


@dataclass(frozen=True)
class MetaNetwork(Mechanism):
    """The server's users and meta network, and the optimiser of both."""

    width: int = 32  # of the users' vectors
    memory: int = 128  # width of what the memory makes of them, the collaborative vector
    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = 0.0001
    user_rate: float = 1.0  # of the users' vectors, times `lr`
    scale: float = 1.0  # standard deviation of these vectors' start
    decay: float = 0.001  # weight of half the squared norm of all parameters
    clip: float = 5.0  # largest norm of the gradient; 0: any
    name: str = "meta network"

    def __post_init__(self) -> None:
        positive(self.name, width=self.width, memory=self.memory)
        if min(self.lr, self.user_rate, self.scale, self.decay, self.clip) < 0:
            raise CoveyError(f"{self.name}: rates, scale, decay and clip may not be negative")

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        model = view.model
        if not isinstance(model, MetaMF):
            raise CoveyError(f"{self.name!r} makes the parameters of covey.methods.metamf:MetaMF")
        rng, wide = Rng.server(view.seed, 0, self.name), model.features
        net = {"memory": xavier(rng.fold("memory"), self.width, self.memory)}
        sizes = dict.fromkeys(LAYERS, (self.memory, wide))
        sizes |= {head: (wide, prod(shape)) for head, shape in model.shapes.items()}
        for part, size in sizes.items():
            net[f"{part}/weight"] = xavier(rng.fold(part), *size)
            net[f"{part}/bias"] = torch.zeros(size[1])
        state = {META + k: v.to(view.public["output"]) for k, v in net.items()}
        return self.admit_clients(replace(view, state=state), enrolment)

    def admit_clients(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        """The state with vectors of all users up to the largest id; new ones are drawn."""
        state, like = view.state, view.state[f"{META}memory"]
        old = state.get(f"{META}users", like.new_zeros(0, self.width))
        new = torch.arange(len(old), int(view.round.ids_C.max()) + 1, device=like.device)
        drawn = self.scale * Rng.of(view.seed, 0, new).home(self.name).normal(self.width).to(like)
        moments = {k: v for k, v in state.items() if k in ("users/m", "users/v")}
        moments = {k: F.pad(v, (0, 0, 0, len(drawn))) for k, v in moments.items()}
        return {**state, **moments, f"{META}users": torch.cat([old, drawn])}

    def hand_out(self, view: ServerView, everyone: Tensor) -> tuple[Tensor, Fields]:
        net = below(view.state, META)
        with torch.no_grad():
            return everyone, generated(net, net["users"][everyone])

    def materialise(self, params: Fields) -> Fields:
        """The item table of each client, from the shared output layer and its own features."""
        table_PT = tables(params["output"][0], params["features"])
        return {"items": table_PT.view(-1, *params["items"].shape[1:])}

    def receive_uploads(self, view: ServerView, upload: Upload) -> tuple[FieldDict, Fields]:
        """One step of the meta network on the weighted mean of the clients' losses."""
        output, weight_C = view.public["output"], upload.weight_C.to(view.public["output"])
        if not bool(weight_C.sum() > 0):
            return view.state, {}
        share_C = -weight_C / weight_C.sum()  # updates are gradients times -1
        rows = upload.update["items"].scaled(share_C)
        net: Fields = {k: v.detach().requires_grad_() for k, v in below(view.state, META).items()}
        with torch.enable_grad():
            made = generated(net, net["users"][upload.ids_C])
            by_output, by_features = rows_backward(output, made["features"].detach(), rows)
            outer = (upload.update["offset"] * share_C[:, None], by_features)
            inner = torch.autograd.grad([made["network"], made["features"]], [*net.values()], outer)
        gradient = {**dict(zip(net, inner, strict=True)), "output": by_output}
        params = {**below(view.state, META), "output": output}
        memory = {k: v for k, v in view.state.items() if not k.startswith(META)}
        norm = torch.stack([g.norm() for g in gradient.values()]).norm()
        scale = (self.clip / (norm + 1e-6)).clamp(max=1) if self.clip else 1
        update = {k: -(scale * g + self.decay * params[k]) for k, g in gradient.items()}
        step = Adam(self.lr) if self.optimizer == "adam" else Add(self.lr)
        old, (memory, params) = params["users"], step.step(memory, params, update)
        params["users"] = old + self.user_rate * (params["users"] - old)
        mean = generated(params, params["users"].mean(0, keepdim=True))
        public = {"output": params.pop("output"), **{k: v[0] for k, v in mean.items()}}
        public["items"] = tables(public["output"], mean["features"]).view_as(view.public["items"])
        return memory | {META + k: v for k, v in params.items()}, public


def generated(net: Fields, user_PD: Tensor) -> Fields:
    """The networks [P, K] and the features [P, H] that the meta network makes of users."""
    c_PM = user_PD @ net["memory"]
    h = {k: (c_PM @ net[f"{k}/weight"] + net[f"{k}/bias"]).relu() for k in LAYERS}
    heads = [h[layer] @ net[f"{k}/weight"] + net[f"{k}/bias"] for k, layer in HEADS.items()]
    return {"network": torch.cat(heads, 1), "features": h["rows"]}


def tables(output_TH: Tensor, features_PH: Tensor) -> Tensor:
    """The item tables of clients, [P, I * E]; the bits of each do not depend on the others."""
    weight_TH, bias_T = output_TH[:, :-1], output_TH[:, -1]
    made = []
    for part_PH in features_PH.split(AT_ONCE):
        whole_PH = F.pad(part_PH, (0, 0, 0, AT_ONCE - len(part_PH)))
        made.append((whole_PH @ weight_TH.mT + bias_T)[: len(part_PH)])
    return torch.cat(made)


def rows_backward(output_TH: Tensor, features_PH: Tensor, grad: Rows) -> tuple[Tensor, Tensor]:
    """The gradients by the output layer and by the features, from those by rows of the tables."""
    by_output, by_features = torch.zeros_like(output_TH), []
    ones_PH = F.pad(features_PH, (0, 1), value=1.0)
    for pick in torch.arange(len(grad), device=output_TH.device).split(AT_ONCE):
        grad_PT = grad.take(pick).dense().flatten(1)
        by_features.append(grad_PT @ output_TH[:, :-1])
        by_output.addmm_(grad_PT.mT, ones_PH[pick])
    return by_output, torch.cat(by_features)


def xavier(rng: Rng, rows: int, columns: int) -> Tensor:
    """Xavier's normal start of a layer [rows, columns], from one stream."""
    return (2 / (rows + columns)) ** 0.5 * rng.normal(rows, columns)[0]

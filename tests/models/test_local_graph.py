"""Propagation over a user's own graph: means, LightGCN and attention by hand, items left out."""

import math

import pytest
import torch
from torch import Tensor

from covey.core import CoveyError, Fields, Rng
from covey.models.base import History
from covey.models.local_graph import GraphAttention, LightGCN, LocalGraph

RNG = Rng.of(0, 1, torch.tensor([0, 1]))
TABLE = torch.tensor([[1.0, 0.0], [0.0, 2.0], [4.0, 4.0]])
USER = torch.tensor([[2.0, 1.0], [8.0, 4.0]])
LISTS = History(torch.tensor([[0, 1], [0, 0]]), torch.tensor([[True, True], [False, False]]))


def test_the_mean_of_the_graph() -> None:
    """Client 0 has items 0 and 1: h = (3, 3) / 3. Client 1 has none: h is its own vector."""
    params = {"items": TABLE[None], "user": USER}
    u_CD = LocalGraph(2).user(params, LISTS, RNG, False)
    torch.testing.assert_close(u_CD, torch.tensor([[5 / 4, 1.0], [8.0, 4.0]]))


def test_training_leaves_the_item_itself_out() -> None:
    """For item 0, h = (2, 3) / 2; for item 1, h = (3, 1) / 2."""
    params = {"items": TABLE[None], "user": USER}
    u_CPD = LocalGraph(2).user(params, LISTS, RNG, True)
    want_PD = torch.tensor([[5 / 4, 5.5 / 4], [6.5 / 4, 2.5 / 4]])
    torch.testing.assert_close(u_CPD[0], want_PD)


def test_lightgcn_against_the_adjacency_of_the_graph() -> None:
    """u, s, u, s with s = (1, 2) / sqrt(2): as D^-1/2 A D^-1/2, applied three times, has it."""
    params = {"items": TABLE[None], "user": USER}
    u_CD = LightGCN(2).user(params, LISTS, RNG, False)
    a_NN = torch.tensor([[0.0, 1, 1], [1, 0, 0], [1, 0, 0]])  # the user and items 0 and 1
    half_N = a_NN.sum(1).rsqrt()
    hop_NN = half_N[:, None] * a_NN * half_N
    layers = [torch.cat([USER[:1], TABLE[:2]])]
    for _ in range(3):
        layers.append(hop_NN @ layers[-1])
    torch.testing.assert_close(u_CD[0], torch.stack(layers).mean(0)[0])
    torch.testing.assert_close(u_CD[0], (2 * USER[0] + 2 * torch.tensor([1, 2]) / 2**0.5) / 4)
    torch.testing.assert_close(u_CD[1], USER[1] / 2)  # without items odd layers are zero
    even = LightGCN(2, layers=2).user(params, LISTS, RNG, False)
    torch.testing.assert_close(even[0], (2 * USER[0] + torch.tensor([1, 2]) / 2**0.5) / 3)


def test_lightgcn_leaves_the_item_itself_out() -> None:
    """Without one of two items, s is the other; without the only one it is zero."""
    params = {"items": TABLE[None], "user": USER}
    u_CPD = LightGCN(2, layers=1).user(params, LISTS, RNG, True)
    torch.testing.assert_close(u_CPD[0], (USER[0] + TABLE[[1, 0]]) / 2)
    one = History(torch.tensor([[2], [1]]), torch.tensor([[True], [True]]))
    u_CPD = LightGCN(2, layers=1).user(params, one, RNG, True)
    torch.testing.assert_close(u_CPD[:, 0], USER / 2)


def attention(neighbours: Tensor, attend: Tensor) -> Fields:
    eye = torch.eye(2)[None]
    return {
        "items": TABLE[None],
        "user": USER,
        "w_items": 2 * eye,
        "w_users": eye,
        "attend": attend[None],
        "neighbours": neighbours,
    }


def test_attention_by_hand() -> None:
    """Logits are 0.1 times the sum of a node; a negative one counts a fifth; zeros are nobody."""
    near = torch.tensor([[[-1.0, -4.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    params = attention(near, torch.tensor([[0.0, 0.0], [0.1, 0.1]]))
    u_CD = GraphAttention(2, neighbours=2).user(params, LISTS, RNG, False)
    nodes = torch.tensor([[2.0, 1.0], [2.0, 0.0], [0.0, 4.0], [-1.0, -4.0]])
    weight = torch.tensor([math.exp(x) for x in (0.3, 0.2, 0.4, -0.1)])
    h_D = (weight[:, None] * nodes).sum(0) / weight.sum()
    torch.testing.assert_close(u_CD[0], (USER[0] + 3 * h_D) / 4)


def test_without_items_and_neighbours_a_user_is_its_own_graph() -> None:
    params = attention(torch.zeros(2, 2, 2), torch.randn(2, 2))
    u_CD = GraphAttention(2, neighbours=2).user(params, LISTS, RNG, False)
    torch.testing.assert_close(u_CD[1], USER[1])
    u_CPD = GraphAttention(2, neighbours=2).user(params, LISTS, RNG, True)
    torch.testing.assert_close(u_CPD[1], USER[1].expand(2, -1))


def test_room_without_neighbours_changes_nothing() -> None:
    params = attention(torch.zeros(2, 5, 2), torch.randn(2, 2))
    without = {**params, "neighbours": torch.zeros(2, 0, 2)}
    for training in (False, True):
        with_room = GraphAttention(2, neighbours=5).user(params, LISTS, RNG, training)
        alone = GraphAttention(2, neighbours=0).user(without, LISTS, RNG, training)
        assert torch.equal(with_room, alone)


def test_steep_attention_stays_finite() -> None:
    params = attention(torch.zeros(2, 1, 2), torch.full((2, 2), 1e3))
    for training in (False, True):
        u = GraphAttention(2, neighbours=1).user(params, LISTS, RNG, training)
        assert bool(u.isfinite().all())


def test_neighbours_are_not_trained() -> None:
    params = attention(torch.ones(2, 1, 2).requires_grad_(), torch.randn(2, 2))
    params["user"] = USER.clone().requires_grad_()
    GraphAttention(2, neighbours=1).user(params, LISTS, RNG, True).sum().backward()
    assert params["neighbours"].grad is None and params["user"].grad is not None
    assert GraphAttention(2, neighbours=1).given == ("neighbours",)


def test_bad_options() -> None:
    with pytest.raises(CoveyError, match="neighbours"):
        GraphAttention(2, neighbours=-1)
    with pytest.raises(CoveyError, match="dim"):
        LocalGraph(0)
    with pytest.raises(CoveyError, match="layers"):
        LightGCN(2, layers=-1)

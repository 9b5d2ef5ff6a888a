"""Ward against a naive version and two libraries, also without a matrix of distances; k-means."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering
from torch import Tensor

from covey.core.rng import Rng
from covey.methods import clustering
from covey.methods.clustering import centres, kmeans, nearest, ward, ward_of_many
from covey.methods.fedcl import clipped


def same_partition(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a[:, None] == a, b[:, None] == b)


def naive_ward(x: np.ndarray, clusters: int) -> Tensor:
    """Joins the two clusters whose union adds least to the squared distances, again and again."""
    groups = [[i] for i in range(len(x))]

    def cost(a: list[int], b: list[int]) -> float:
        apart = ((x[a].mean(0) - x[b].mean(0)) ** 2).sum()
        return float(len(a) * len(b) / (len(a) + len(b)) * apart)

    while len(groups) > clusters:
        pairs = [
            (cost(a, b), i, j) for i, a in enumerate(groups) for j, b in enumerate(groups) if i < j
        ]
        _, i, j = min(pairs)
        groups[i] += groups.pop(j)
    label = torch.zeros(len(x), dtype=torch.long)
    for k, members in enumerate(groups):
        label[members] = k
    return label


@pytest.mark.parametrize("largest", [10_000, 1], ids=["scipy", "without distances"])
def test_ward_is_ward(largest: int) -> None:
    torch.manual_seed(0)
    small, large = torch.randn(30, 5), torch.randn(500, 64)
    assert same_partition(ward(small, 6, largest), naive_ward(small.double().numpy(), 6))
    theirs = AgglomerativeClustering(n_clusters=25, linkage="ward").fit_predict(
        large.double().numpy()
    )
    assert same_partition(ward(large, 25, largest), torch.from_numpy(theirs))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 60), st.integers(1, 70), st.integers(0, 10_000))
def test_ward_without_distances_is_scipys(rows: int, clusters: int, seed: int) -> None:
    x_ND = torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))
    x_ND *= torch.linspace(0.1, 10, rows)[:, None]
    many = ward_of_many(x_ND, clusters)
    assert same_partition(many, ward(x_ND, clusters)) and len(many.unique()) == min(rows, clusters)


def test_blocks_of_distances_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x_ND = torch.randn(300, 8, generator=torch.Generator().manual_seed(1))
    whole = ward_of_many(x_ND, 12)
    monkeypatch.setattr(clustering, "TILE", (7, 50))
    assert torch.equal(ward_of_many(x_ND, 12), whole)


@pytest.mark.parametrize("largest", [10_000, 1])
def test_few_or_equal_rows(largest: int) -> None:
    assert ward(torch.zeros(1, 3), 25, largest).tolist() == [0]
    assert ward(torch.zeros(0, 3), 25, largest).tolist() == []
    assert sorted(ward(torch.eye(3), 25, largest).tolist()) == [0, 1, 2]
    assert set(ward(torch.zeros(40, 3), 25, largest).tolist()) <= set(range(25))


def test_kmeans_finds_clear_groups_and_takes_few_or_equal_rows() -> None:
    torch.manual_seed(0)
    group_N = torch.arange(60) % 3
    x_ND = 10 * torch.eye(3)[group_N] + 0.1 * torch.randn(60, 3)
    assert same_partition(kmeans(x_ND, 3, 0), group_N)
    assert kmeans(torch.zeros(40, 3), 25, 0).tolist() == [0] * 40
    assert len(kmeans(torch.eye(3), 25, 0).unique()) == 3


def test_centres_are_means_with_everybodys_first() -> None:
    x_ND = torch.tensor([[0.0, 0.0], [2.0, 0.0], [4.0, 6.0]])
    centre_KD = centres(x_ND, torch.tensor([1, 1, 0]))
    torch.testing.assert_close(centre_KD, torch.tensor([[2.0, 2.0], [4.0, 6.0], [1.0, 0.0]]))
    assert nearest(torch.tensor([[1.1, 0.0], [9.0, 9.0]]), centre_KD[1:]).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("epsilon", "least", "most"), [(1e9, 0.7, 1.0), (200.0, 0.7, 1.0), (4.0, 0.2, 0.32)]
)
def test_the_noise_of_the_paper_leaves_no_groups(epsilon: float, least: float, most: float) -> None:
    """How much of a user's own pool a cluster retrieves, with clear groups of users and items."""
    gen = torch.Generator().manual_seed(0)
    group_KD = torch.randn(12, 64, generator=gen)
    user_ND, item_ID = (
        group_KD[torch.arange(many) % 12] + 0.5 * torch.randn(many, 64, generator=gen)
        for many in (600, 400)
    )
    report_ND = clipped(user_ND, 1.0) + Rng.of(0, 1, torch.arange(600)).laplace(2 / epsilon, 64)
    label_N = ward(report_ND, 12)

    def pool(query_ND: Tensor) -> Tensor:
        return torch.zeros(600, 400).scatter_(1, (query_ND @ item_ID.mT).topk(100, 1).indices, 1)

    shared = (pool(centres(report_ND, label_N)[1 + label_N]) * pool(user_ND)).sum(1).mean() / 100
    assert least <= float(shared) <= most  # 0.25 is chance

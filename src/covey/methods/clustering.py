"""Clusters users' vectors, by Ward's minimum variance or k-means.

Up to `LARGEST` rows Ward is scipy's, whose distances take 8 N^2 / 2 bytes. Beyond, and on CUDA, the
same tree is grown without them: a turn joins all pairs of clusters that are each other's nearest,
whose order does not matter, since Ward is reducible (Murtagh, 1983). A cluster whose nearest one
was joined can wait, since its cost is a lower bound. Memory is one block of distances.
"""

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import KMeans
from torch import Tensor

LARGEST = 3000  # rows up to which scipy is faster on a CPU; its distances take 36 MB
FEW = 1000  # the same for rows on CUDA
BLOCK = 1 << 23  # distances at a time on CUDA: 64 MB
TILE = (256, 512)  # distances at a time on a CPU: 1 MB, which fits the cache
NEXT = 0.3  # the share of clusters, by cost, whose nearest is updated in each turn; others wait


def ward(x_ND: Tensor, clusters: int, largest: int = LARGEST) -> Tensor:
    """The cluster of each row, from 0 to at most `clusters` - 1; by scipy up to `largest` rows."""
    if len(x_ND) < 2:
        return torch.zeros(len(x_ND), dtype=torch.long, device=x_ND.device)
    if len(x_ND) > (min(FEW, largest) if x_ND.is_cuda else largest):
        return ward_of_many(x_ND, clusters)
    tree = linkage(x_ND.double().cpu().numpy(), "ward")
    return torch.from_numpy(fcluster(tree, clusters, "maxclust") - 1).long().to(x_ND.device)


def ward_of_many(x_ND: Tensor, clusters: int) -> Tensor:
    """`ward` without a matrix of distances, on the device of the rows."""
    centre = x_ND.double() - x_ND.double().mean(0)
    size = torch.ones(len(centre), dtype=torch.float64, device=centre.device)
    name = torch.arange(len(centre), device=centre.device)  # a row that is in the cluster
    near, cost = _nearest(centre, size, name)
    # Clusters whose nearest has moved; their cost can only be higher.
    stale = torch.zeros_like(name, dtype=torch.bool)
    joins = []
    while len(centre) > 1:
        here = torch.arange(len(centre), device=centre.device)
        a = ((near[near] == here) & (here < near) & ~stale & ~stale[near]).nonzero()[:, 0]
        if not len(a) and not stale.any():  # equal distances, rounded apart
            a = cost.argmin()[None]
        if len(a):
            b = near[a]
            joins.append(torch.stack([cost[a], name[a].double(), name[b].double()]))
            both = size[a] + size[b]
            centre[a] = (centre[a] * size[a, None] + centre[b] * size[b, None]) / both[:, None]
            size[a] = both
            left, moved = torch.ones_like(stale), torch.zeros_like(stale)
            left[b], moved[a], moved[b] = False, True, True
            stale = (stale | moved | moved[near])[left]  # all others keep their nearest
            near = (left.long().cumsum(0) - 1).clamp_(min=0)[near[left]]
            centre, size, name, cost = centre[left], size[left], name[left], cost[left]
        if len(centre) > 1:
            limit = cost.quantile(NEXT) if len(a) else torch.inf
            again = (stale & (cost <= limit)).nonzero()[:, 0]
            near[again], cost[again] = _nearest(centre, size, again)
            stale[again] = False
    return _cut(torch.cat(joins, 1).cpu().numpy(), len(x_ND), clusters).to(x_ND.device)


def _nearest(centre: Tensor, size: Tensor, some: Tensor) -> tuple[Tensor, Tensor]:
    """For some clusters the one whose union adds least to the squared distances, and how much."""
    high, wide = (max(BLOCK // len(centre), 1), len(centre)) if centre.is_cuda else TILE
    square, share = centre.square().sum(1, keepdim=True), 1 / size
    one = torch.ones_like(square)
    row = torch.cat([-2 * centre, square, one], 1)
    column = torch.cat([centre, one, square], 1).mT.contiguous()
    near, cost = torch.zeros_like(some), torch.full_like(size[some], torch.inf)
    for start in range(0, len(some), high):
        part = some[start : start + high]
        left, best, at = row[part], cost[start : start + high], near[start : start + high]
        for first in range(0, len(centre), wide):
            found = left @ column[:, first : first + wide]  # |a|^2 + |b|^2 - 2 ab
            found /= share[part, None] + share[first : first + wide]
            own = ((first <= part) & (part < first + wide)).nonzero()[:, 0]
            found[own, part[own] - first] = torch.inf
            least = found.min(1)
            less = least.values < best
            best[less], at[less] = least.values[less], least.indices[less] + first
    return near, cost.clamp_(min=0)


def _cut(joins: np.ndarray, n: int, clusters: int) -> Tensor:
    """The clusters after the cheapest joins, as many as leave `clusters` clusters."""
    low = joins[:, joins[0].argsort(kind="stable")[: max(n - clusters, 0)]]
    pairs = (low[1].astype(int), low[2].astype(int))
    edges = coo_array((np.ones(low.shape[1]), pairs), shape=(n, n))
    return torch.from_numpy(connected_components(edges, directed=False)[1]).long()


def kmeans(x_ND: Tensor, clusters: int, seed: int, start_KD: Tensor | None = None) -> Tensor:
    """Lloyd's algorithm from `start_KD`, if it has as many rows, or from one k-means++ start."""
    x = x_ND.double().cpu().numpy()
    many = min(clusters, len(np.unique(x, axis=0)))
    known = start_KD is not None and len(start_KD) == many
    init = start_KD.double().cpu().numpy() if start_KD is not None and known else "k-means++"
    label = KMeans(many, init=init, n_init=1, random_state=seed).fit_predict(x)
    return torch.from_numpy(label).long().to(x_ND.device)


def centres(x_ND: Tensor, cluster_N: Tensor) -> Tensor:
    """The mean of all rows, then those of the clusters, [1 + K, D]."""
    count_K = torch.bincount(cluster_N)
    sum_KD = x_ND.new_zeros(len(count_K), x_ND.shape[1]).index_add_(0, cluster_N, x_ND)
    return torch.cat([x_ND.mean(0, keepdim=True), sum_KD / count_K[:, None]])


def nearest(x_CD: Tensor, centre_KD: Tensor) -> Tensor:
    """The nearest centre of each row, from 0."""
    return torch.cdist(x_CD, centre_KD, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)

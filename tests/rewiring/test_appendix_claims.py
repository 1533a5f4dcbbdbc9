"""The claims of the paper's appendix about random regular graphs, checked on sampled ones."""

import math

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import eigsh

from grass_gnn.rewiring import random_regular_edges


def sample(n: int, r: int, seed: int) -> sp.csr_array:
    """Adjacency matrix of the main text's graph: r / 2 permutations, loops and repeats removed."""
    seeds = torch.tensor([seed])
    head, tail = random_regular_edges(torch.tensor([0, n]), r, seeds, "half").numpy()
    return sp.csr_array((np.ones(head.size), (head, tail)), shape=(n, n))


def diameter(adjacency: sp.csr_array) -> int:
    """Exact, by breadth-first search from all nodes at once, with one bit per node."""
    n = adjacency.shape[0]
    reached = np.zeros((n, -(-n // 64)), dtype=np.uint64)
    node = np.arange(n)
    reached[node, node // 64] = np.uint64(1) << (node % 64).astype(np.uint64)
    everything = np.bitwise_or.reduce(reached, axis=0)
    for steps in range(n):
        if (reached == everything).all():
            return steps
        nearby = np.bitwise_or.reduceat(reached[adjacency.indices], adjacency.indptr[:-1], axis=0)
        reached = reached | nearby
    raise AssertionError("The graph is not connected.")


def diameter_bound(n: int, r: int) -> int:
    """The smallest d with (r − 1)^(d − 1) ≥ (2 + ε) r |V| log |V| (equation 18), for ε → 0."""
    return 1 + math.ceil(math.log(2 * r * n * math.log(n)) / math.log(r - 1))


def test_diameter_is_exact() -> None:
    graph = nx.gnp_random_graph(150, 0.03, seed=3)
    graph = graph.subgraph(max(nx.connected_components(graph), key=len))
    assert diameter(nx.to_scipy_sparse_array(graph, format="csr")) == nx.diameter(graph)


@pytest.mark.parametrize("r", [4, 6])
@pytest.mark.parametrize("n", [100, 1000, 10_000])
def test_diameter_bound(n: int, r: int) -> None:
    bound = diameter_bound(n, r)
    for seed in range(3 if n < 10_000 else 1):
        found = diameter(sample(n, r, seed))
        # It grows as log_(r−1) |V|, so the bound is not only kept but of the right size.
        assert bound / 2 < found <= bound, (n, r, found, bound)


def test_superimposing_shortens_a_long_graph() -> None:
    path = sp.csr_array(nx.to_scipy_sparse_array(nx.path_graph(1000), format="csr", dtype=float))
    assert diameter(path) == 999
    assert diameter(sp.csr_array(path + sample(1000, 6, 0))) <= diameter_bound(1000, 6)


@pytest.mark.parametrize("n", [100, 1000, 10_000])
def test_spectral_gap(n: int) -> None:
    r = 6
    adjacency = sample(n, r, seed=n)
    start = np.random.default_rng(0).standard_normal(n)
    top = np.sort(eigsh(adjacency, k=2, which="LA", v0=start, tol=1e-6)[0])
    low = eigsh(adjacency, k=1, which="SA", v0=start, tol=1e-6)[0]
    mu = max(abs(top[0]), abs(low[0]))
    assert mu < 2 * math.sqrt(r - 1) + 1
    # Removed loops and repeats leave the graph a little short of regular; the gap stays.
    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    laplacian = sp.diags_array(degree) - adjacency
    gap = np.sort(eigsh(laplacian, k=2, which="SA", v0=start, tol=1e-6)[0])[1]
    assert gap > r - 2 * math.sqrt(r - 1) - 1


def test_vertex_connectivity_of_simple_graphs() -> None:
    seeds = torch.arange(3)
    ptr = torch.arange(4) * 60
    edge_index = random_regular_edges(ptr, 2, seeds, "simple", max_trials=20_000)
    for b in range(3):
        inside = edge_index[:, edge_index[0] // 60 == b]
        graph = nx.Graph(inside.t().tolist())
        assert nx.node_connectivity(graph) == 4

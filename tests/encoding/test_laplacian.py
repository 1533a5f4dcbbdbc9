import networkx as nx
import numpy as np
import pytest
import torch
from graph_cases import SPECIAL, Case, edges, graphs
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components, laplacian
from torch_geometric.data import Batch, Data

from grass_gnn.encoding import AddLaplacianPE, flip_signs, laplacian_eigenvectors
from grass_gnn.encoding import eigen as spectrum


def check(case: Case, k: int) -> None:
    """Compare with the spectrum of the dense Laplacian in float64."""
    vectors = laplacian_eigenvectors(case.edge_index, case.num_nodes, k, case.weight).double()
    assert vectors.shape == (case.num_nodes, k)
    matrix = case.adjacency()
    if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-6 * matrix.max(initial=0)):
        matrix = matrix + matrix.T
    degree = matrix.sum(1)
    scale = np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    # Zero on isolated nodes, as in SciPy and NetworkX: theirs are trivial as well.
    full = np.diag((degree > 0).astype(float)) - scale[:, None] * matrix * scale
    if not matrix.diagonal().any():  # SciPy leaves loops out
        np.testing.assert_allclose(full, laplacian(matrix, normed=True), atol=1e-12)
    trivial = connected_components(matrix, directed=False)[0]
    count = min(k, case.num_nodes - trivial)
    found = vectors[:, :count].numpy()
    assert not vectors[:, count:].any()
    np.testing.assert_allclose(found.T @ found, np.eye(count), atol=1e-5)
    values = np.einsum("nk,nm,mk->k", found, full, found)
    np.testing.assert_allclose(full @ found, found * values, atol=1e-5)
    np.testing.assert_allclose(
        values, np.linalg.eigvalsh(full)[trivial : trivial + count], atol=1e-5
    )


@given(graphs(), st.integers(1, 15))
def test_eigenvectors(case: Case, k: int) -> None:
    check(case, k)
    check(case.symmetric(), k)


@pytest.mark.parametrize("case", SPECIAL.values(), ids=SPECIAL)
def test_special_graphs(case: Case) -> None:
    check(case, 8)


@pytest.mark.parametrize("k", [8, 128])
def test_sparse_solver(k: int) -> None:
    graph = nx.disjoint_union(nx.grid_2d_graph(27, 28), nx.gnp_random_graph(30, 0.2, seed=0))
    graph.add_node("isolated")
    graph = nx.convert_node_labels_to_integers(graph)
    case = Case(edges(*graph.edges), graph.number_of_nodes(), None).symmetric()
    assert not spectrum.use_dense(case.num_nodes - 1, k)
    check(case, k)


def test_ten_thousand_nodes() -> None:
    halves = [nx.random_regular_graph(6, 5000, seed=s) for s in (0, 1)]
    graph = nx.disjoint_union(*halves)
    graph.add_edges_from((i, 5000 + i) for i in range(50))
    case = Case(edges(*graph.edges), 10_000, None).symmetric()
    fiedler = laplacian_eigenvectors(case.edge_index, 10_000, 1).squeeze(1)
    side = fiedler.sign().view(2, 5000).mean(1)  # it tells the two halves apart
    assert side[0] * side[1] < -0.9


def test_signs_flip_per_graph_and_together() -> None:
    generator = torch.Generator().manual_seed(0)
    node_pe, node_graph = torch.randn(300, 8, generator=generator), torch.arange(300) // 3
    pairs = torch.stack([torch.arange(300), torch.arange(300) // 3 * 3])
    edge_pe = torch.cat([node_pe[pairs[0]], node_pe[pairs[1]]], 1)
    nodes, pair_rows = flip_signs(node_pe, edge_pe, node_graph, node_graph, 100, generator)
    sign = nodes / node_pe
    assert set(sign.unique().tolist()) == {-1, 1}
    assert torch.equal(sign[::3], sign[1::3]) and torch.equal(sign[::3], sign[2::3])
    assert torch.equal(pair_rows, torch.cat([nodes[pairs[0]], nodes[pairs[1]]], 1))
    assert abs(float(sign[::3].mean())) < 0.15  # 800 fair coins


def test_transform_batches() -> None:
    transform = AddLaplacianPE(4)
    expected = "AddLaplacianPE(k=4, weight_key='edge_weight', attr_name='laplacian_pe')"
    assert repr(transform) == expected
    parts = [
        transform(Data(edge_index=SPECIAL[name].symmetric().edge_index, num_nodes=5))
        for name in ("two components", "isolated nodes", "no edge")
    ]
    batch = Batch.from_data_list(parts)
    assert batch.laplacian_pe.shape == (15, 4) and batch.edge_laplacian_pe.shape == (8, 8)
    i, j = batch.edge_index
    expected = torch.cat([batch.laplacian_pe[i], batch.laplacian_pe[j]], 1)
    assert torch.equal(batch.edge_laplacian_pe, expected)
    with pytest.raises(ValueError, match="k must be at least 1"):
        AddLaplacianPE(0)

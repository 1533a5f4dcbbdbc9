import networkx as nx
import numpy as np
import pytest
import torch
from graph_cases import SPECIAL, Case, edges, graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from grass_gnn.encoding import (
    AddDecomposedRRWP,
    decompose,
    decomposed_nodes,
    decomposed_pairs,
    dense_rrwp,
    node_degrees,
    rrwp_from_decomposition,
)
from grass_gnn.encoding import eigen as spectrum


def scaled(matrix: np.ndarray) -> np.ndarray:
    """D_out^-½ A D_in^-½ in float64, straight from the definition."""
    with np.errstate(divide="ignore"):
        rows, columns = 1 / np.sqrt(matrix.sum(1)), 1 / np.sqrt(matrix.sum(0))
    rows[np.isinf(rows)] = 0
    columns[np.isinf(columns)] = 0
    return rows[:, None] * matrix * columns


def powers(matrix: np.ndarray, k: int) -> np.ndarray:
    return np.stack([np.linalg.matrix_power(matrix, h) for h in range(1, k + 1)])


def all_pairs(num_nodes: int) -> torch.Tensor:
    return torch.cartesian_prod(torch.arange(num_nodes), torch.arange(num_nodes)).t()


def from_networkx(graph: nx.Graph) -> Case:
    graph = nx.convert_node_labels_to_integers(graph)
    return Case(edges(*graph.edges), graph.number_of_nodes(), None).symmetric()


@given(graphs(), st.integers(1, 12))
def test_all_eigenpairs_give_the_powers_and_rrwp(case: Case, k: int) -> None:
    case = case.symmetric()
    n, pairs = case.num_nodes, all_pairs(case.num_nodes)
    found = decompose(case.edge_index, n, n, case.weight)
    assert found.error == 0
    expected = powers(scaled(case.adjacency()), k).reshape(k, -1).T
    encoding = decomposed_pairs(pairs, found.vectors, found.values, k)
    np.testing.assert_allclose(encoding, expected, atol=1e-5)
    np.testing.assert_allclose(
        decomposed_nodes(found.vectors, found.values, k), expected[:: n + 1], atol=1e-5
    )
    degree = node_degrees(*case)[:, 0]
    walk = rrwp_from_decomposition(pairs, found.vectors, found.values, degree, k)
    exact = dense_rrwp(case.edge_index, n, k, case.weight)
    # The ratio of degrees multiplies rounding errors too.
    ratio = (degree.max() / degree[degree > 0].min()).sqrt() if bool(degree.any()) else 1.0
    torch.testing.assert_close(walk, exact.view(k, -1).t(), atol=1e-5 * float(ratio), rtol=0)


@pytest.mark.parametrize("case", SPECIAL.values(), ids=SPECIAL)
@pytest.mark.parametrize("m", [1, 2, 40])
def test_special_graphs(case: Case, m: int) -> None:
    case = case.symmetric()
    found = decompose(case.edge_index, case.num_nodes, m, case.weight)
    assert found.vectors.shape == (case.num_nodes, m + 1) and found.values.shape == (m + 1,)
    remainder = scaled(case.adjacency()) - (found.vectors * found.values @ found.vectors.T).numpy()
    assert np.linalg.norm(remainder, 2) == pytest.approx(found.error, abs=1e-6)
    assert decomposed_nodes(found.vectors, found.values, 100).isfinite().all()


@given(graphs(), st.integers(1, 6))
def test_error_is_the_norm_of_what_is_left_out(case: Case, m: int) -> None:
    case = case.symmetric()
    found = decompose(case.edge_index, case.num_nodes, m, case.weight)
    matrix = scaled(case.adjacency())
    remainder = matrix - (found.vectors * found.values @ found.vectors.T).numpy()
    assert np.linalg.norm(remainder, 2) == pytest.approx(found.error, abs=1e-5)
    kept = np.sort(abs(np.linalg.eigvalsh(matrix)))[::-1][: min(m, case.num_nodes)]
    np.testing.assert_allclose(abs(found.values[: kept.size]), kept, atol=1e-6)


@pytest.mark.parametrize("lanczos", [False, True])
def test_both_members_of_a_plus_minus_pair_are_kept(lanczos: bool, monkeypatch) -> None:
    if lanczos:
        monkeypatch.setattr(spectrum, "use_dense", lambda *_: False)
    for graph in (nx.cycle_graph(20), nx.path_graph(15), nx.hypercube_graph(4)):
        case = from_networkx(graph)
        for m in range(1, 6):
            values = decompose(case.edge_index, case.num_nodes, m).values.double()
            # On a bipartite graph the eigenvalues come in pairs, so odd powers have no trace.
            assert abs(float((values**3).sum())) < 1e-5, (graph, m)
            assert int((values.abs() > 1e-6).sum()) == m + m % 2


@pytest.mark.parametrize("m", [1, 10, 60])
def test_lanczos_finds_what_the_dense_solver_finds(m: int, monkeypatch) -> None:
    sparse = nx.disjoint_union_all([nx.gnp_random_graph(160, 0.04, seed=s) for s in range(4)])
    case = from_networkx(sparse)  # eigenvalue 1 comes several times
    assert not spectrum.use_dense(case.num_nodes, m + 2)
    lanczos = decompose(case.edge_index, case.num_nodes, m)
    again = decompose(case.edge_index, case.num_nodes, m)
    assert torch.equal(lanczos.vectors, again.vectors)
    monkeypatch.setattr(spectrum, "use_dense", lambda *_: True)
    dense = decompose(case.edge_index, case.num_nodes, m)
    torch.testing.assert_close(lanczos.values, dense.values, atol=1e-6, rtol=0)
    assert lanczos.error == pytest.approx(dense.error, abs=1e-6)


def test_lanczos_misses_no_copy_of_a_multiple_eigenvalue() -> None:
    twins = nx.disjoint_union_all([nx.random_regular_graph(3, 40, seed=2)] * 20)
    case = from_networkx(twins)
    for m in (8, 20, 23):
        found = decompose(case.edge_index, case.num_nodes, m)
        exact = np.sort(abs(np.linalg.eigvalsh(scaled(case.adjacency()[:40, :40]))))[::-1]
        exact = np.repeat(exact, 20)
        np.testing.assert_allclose(found.values[:m].abs(), exact[:m], atol=1e-6)
        assert found.error == pytest.approx(exact[m], abs=1e-6)


def test_a_light_directed_edge_next_to_heavy_ones_is_directed() -> None:
    edge_index, weight = edges((0, 1), (1, 0), (2, 3)), torch.tensor([1e6, 1e6, 0.1])
    with pytest.raises(ValueError, match='directed="symmetrize"'):
        decompose(edge_index, 4, 4, weight)
    # Written the other way round, it has the same symmetrised walks.
    pair = torch.tensor([[2, 2], [2, 3]])
    for edge in (edge_index, edges((0, 1), (1, 0), (3, 2))):
        found = decompose(edge, 4, 4, weight, directed="symmetrize")
        walks = decomposed_pairs(pair, found.vectors, found.values, 2)
        torch.testing.assert_close(walks, torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    # Rounding in float32 does not make edges directed.
    rounded = torch.tensor([1e6, 1e6 * (1 + 1e-7)])
    assert decompose(edges((0, 1), (1, 0)), 2, 2, rounded).error == pytest.approx(0, abs=1e-6)


@given(graphs(), st.integers(1, 5))
def test_alternating_walks_of_directed_graphs(case: Case, k: int) -> None:
    n, pairs = case.num_nodes, all_pairs(case.num_nodes)
    found = decompose(case.edge_index, n, n, case.weight, directed="alternating")
    matrix = scaled(case.adjacency())
    along = decomposed_pairs(pairs, found.vectors, found.values, k)
    against = decomposed_pairs(pairs, found.right_vectors, found.values, k)
    np.testing.assert_allclose(along, powers(matrix @ matrix.T, k).reshape(k, -1).T, atol=1e-5)
    np.testing.assert_allclose(against, powers(matrix.T @ matrix, k).reshape(k, -1).T, atol=1e-5)
    cut = decompose(case.edge_index, n, 2, case.weight, directed="alternating")
    remainder = matrix @ matrix.T - (cut.vectors * cut.values @ cut.vectors.T).numpy()
    assert np.linalg.norm(remainder, 2) == pytest.approx(cut.error, abs=1e-5)


def test_alternating_by_lanczos() -> None:
    graph = nx.gnp_random_graph(700, 0.01, seed=0, directed=True)
    case = Case(edges(*graph.edges), 700, None)
    found = decompose(case.edge_index, 700, 20, directed="alternating")
    singular = np.linalg.svd(scaled(case.adjacency()), compute_uv=False)
    np.testing.assert_allclose(found.values[:20], singular[:20] ** 2, atol=1e-6)
    assert found.error == pytest.approx(singular[20] ** 2, abs=1e-6)


def test_directed_graphs_are_refused_or_symmetrised() -> None:
    case = Case(edges((0, 1), (1, 2), (2, 1)), 3, None)
    with pytest.raises(ValueError, match='directed="symmetrize" or directed="alternating"'):
        decompose(case.edge_index, 3, 2)
    found = decompose(case.edge_index, 3, 3, directed="symmetrize")
    total = case.adjacency() + case.adjacency().T
    rebuilt = (found.vectors * found.values @ found.vectors.T).numpy()
    np.testing.assert_allclose(rebuilt, scaled(total), atol=1e-6)
    # Weights that differ by direction are not symmetric either.
    both = edges((0, 1), (1, 0))
    with pytest.raises(ValueError, match="without an equal reverse"):
        decompose(both, 2, 1, torch.tensor([1.0, 2.0]))


@given(st.lists(graphs(), min_size=1, max_size=5), st.integers(1, 5), st.randoms())
@settings(max_examples=50)
def test_a_batch_equals_its_graphs(cases: list[Case], m: int, random) -> None:
    cases = [case.symmetric() for case in cases]
    found = [decompose(case.edge_index, case.num_nodes, m, case.weight) for case in cases]
    sizes = torch.tensor([case.num_nodes for case in cases])
    first = sizes.cumsum(0) - sizes
    pairs = torch.cat([all_pairs(c.num_nodes) + p for c, p in zip(cases, first, strict=True)], 1)
    expected = torch.cat(
        [
            decomposed_pairs(all_pairs(c.num_nodes), f.vectors, f.values, 6)
            for c, f in zip(cases, found, strict=True)
        ]
    )
    order = torch.tensor(random.sample(range(pairs.size(1)), pairs.size(1)))
    vectors, values = torch.cat([f.vectors for f in found]), torch.stack([f.values for f in found])
    node_graph = torch.repeat_interleave(sizes)
    batched = decomposed_pairs(pairs[:, order], vectors, values, 6, node_graph)
    torch.testing.assert_close(batched, expected[order], atol=1e-6, rtol=1e-5)


def test_many_pairs_are_taken_in_chunks(monkeypatch) -> None:
    generator = torch.Generator().manual_seed(0)
    vectors, values = torch.randn(40, 5, generator=generator), torch.rand(2, 5, generator=generator)
    node_graph = torch.arange(40) // 20
    pairs = torch.randint(0, 20, (2, 3000), generator=generator)
    pairs[:, ::3] += 20
    whole = decomposed_pairs(pairs, vectors, values, 4, node_graph)
    monkeypatch.setattr("grass_gnn.encoding.drrwp._CHUNK_NUMBERS", 1)
    torch.testing.assert_close(decomposed_pairs(pairs, vectors, values, 4, node_graph), whole)
    steps = values[node_graph[pairs[0]]].unsqueeze(2) ** torch.arange(1, 5)
    product = (vectors[pairs[0]] * vectors[pairs[1]]).unsqueeze(1)
    torch.testing.assert_close((product @ steps).squeeze(1), whole)


def test_bad_arguments() -> None:
    edge_index = edges((0, 1), (1, 0))
    for m in (0, -3):
        with pytest.raises(ValueError, match=f"m must be at least 1, not {m}"):
            decompose(edge_index, 2, m)
    with pytest.raises(ValueError, match="directed must be one of error, symmetrize, alternating"):
        decompose(edge_index, 2, 1, directed="both")
    vectors, values = torch.ones(4, 2), torch.ones(2, 2)
    with pytest.raises(ValueError, match="node_graph must be given"):
        decomposed_pairs(edge_index, vectors, values, 1)
    with pytest.raises(ValueError, match=r"pairs\[:, 1\] connects"):
        decomposed_pairs(edges((0, 1), (1, 2)), vectors, values, 1, torch.tensor([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="k must be at least 1"):
        AddDecomposedRRWP(0)


@pytest.mark.parametrize(("directed", "columns"), [("error", 4), ("alternating", 8)])
def test_transform_batches(directed: str, columns: int) -> None:
    transform = AddDecomposedRRWP(4, m=3, directed=directed)
    expected = (
        "AddDecomposedRRWP(k=4, m=3, weight_key='edge_weight', "
        f"directed='{directed}', attr_name='rrwp')"
    )
    assert repr(transform) == expected
    assert AddDecomposedRRWP(4).m == 4
    graphs = [from_networkx(g) for g in (nx.petersen_graph(), nx.path_graph(2), nx.empty_graph(1))]
    parts = [transform(Data(edge_index=g.edge_index, num_nodes=g.num_nodes)) for g in graphs]
    batch = Batch.from_data_list(parts)
    assert batch.rrwp.shape == (13, columns) and batch.edge_rrwp.shape == (32, columns)
    assert batch.rrwp_vectors.shape == (13, 4) and batch.rrwp_values.shape == (3, 4)
    again = decomposed_pairs(
        batch.edge_index, batch.rrwp_vectors, batch.rrwp_values, 4, batch.batch
    )
    torch.testing.assert_close(again, batch.edge_rrwp[:, :4])

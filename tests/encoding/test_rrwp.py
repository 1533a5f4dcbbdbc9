import pickle

import networkx as nx
import numpy as np
import pytest
import torch
from graph_cases import SPECIAL, Case, edges, graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from grass_gnn.encoding import AddRRWP, dense_rrwp, rrwp_nodes, rrwp_pairs, transition_probabilities
from grass_gnn.encoding.rrwp import walk_native, walk_torch
from grass_gnn.ops import build

WALKS = [
    pytest.param(walk_torch, id="torch"),
    pytest.param(
        walk_native,
        id="native",
        marks=pytest.mark.skipif(not build.available(), reason="no C++ library"),
    ),
]


def powers(case: Case, k: int) -> np.ndarray:
    """[T, T², …, T^k] in float64, straight from the definition."""
    matrix = case.adjacency()
    degree = matrix.sum(1, keepdims=True)
    step = np.divide(matrix, degree, out=np.zeros_like(matrix), where=degree > 0)
    return np.stack([np.linalg.matrix_power(step, h) for h in range(1, k + 1)])


def all_pairs(num_nodes: int) -> torch.Tensor:
    return torch.cartesian_prod(torch.arange(num_nodes), torch.arange(num_nodes)).t()


@given(graphs(), st.integers(1, 20))
def test_rrwp_is_the_powers_of_the_transition_matrix(case: Case, k: int) -> None:
    np.testing.assert_allclose(
        dense_rrwp(case.edge_index, case.num_nodes, k, case.weight), powers(case, k), atol=1e-6
    )


@pytest.mark.parametrize("case", SPECIAL.values(), ids=SPECIAL)
@pytest.mark.parametrize("both_directions", [False, True])
def test_special_graphs(case: Case, both_directions: bool) -> None:
    case = case.symmetric() if both_directions else case
    expected = powers(case, 7)
    np.testing.assert_allclose(
        dense_rrwp(case.edge_index, case.num_nodes, 7, case.weight), expected, atol=1e-6
    )
    transition = transition_probabilities(*case)
    found = rrwp_nodes(case.edge_index, case.num_nodes, 7, transition)
    np.testing.assert_allclose(found, np.diagonal(expected, axis1=1, axis2=2).T, atol=1e-6)


@pytest.mark.parametrize("walk", WALKS)
@given(case=graphs(), k=st.integers(1, 40))
def test_pairs_and_nodes(walk, case: Case, k: int) -> None:
    expected = torch.from_numpy(powers(case, k)).float()
    pairs, ptr = all_pairs(case.num_nodes), torch.tensor([0, case.num_nodes])
    transition = transition_probabilities(*case)
    found = walk(pairs, case.edge_index, transition, ptr, k, True)
    there, back = expected[:, pairs[0], pairs[1]].t(), expected[:, pairs[1], pairs[0]].t()
    torch.testing.assert_close(found, torch.cat([there, back], 1), atol=1e-6, rtol=1e-5)
    assert torch.equal(walk(pairs, case.edge_index, transition, ptr, k, False), found[:, :k])


@pytest.mark.parametrize("walk", WALKS)
@given(cases=st.lists(graphs(), min_size=1, max_size=6), random=st.randoms())
@settings(max_examples=50)
def test_a_batch_equals_its_graphs(walk, cases: list[Case], random) -> None:
    k = 9
    sizes = torch.tensor([case.num_nodes for case in cases])
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    transition = torch.cat([transition_probabilities(*case) for case in cases])
    edge_index = torch.cat([c.edge_index + p for c, p in zip(cases, ptr, strict=False)], 1)
    pairs = torch.cat([all_pairs(c.num_nodes) + p for c, p in zip(cases, ptr, strict=False)], 1)
    expected = torch.cat(
        [
            rrwp_pairs(
                all_pairs(c.num_nodes), c.edge_index, transition_probabilities(*c), c.num_nodes, k
            )
            for c in cases
        ]
    )
    # Neither the order of the pairs nor that of the edges matters.
    shuffled = torch.tensor(random.sample(range(pairs.size(1)), pairs.size(1)))
    edge_order = torch.randperm(edge_index.size(1))
    found = walk(
        pairs[:, shuffled], edge_index[:, edge_order], transition[edge_order], ptr, k, True
    )
    torch.testing.assert_close(found, expected[shuffled], atol=1e-6, rtol=0)


@pytest.mark.parametrize("walk", WALKS)
def test_large_graphs_are_walked_in_blocks_of_end_nodes(walk, monkeypatch) -> None:
    monkeypatch.setattr("grass_gnn.encoding.rrwp._BLOCK_NUMBERS", 700 * 100)
    graph = nx.gnp_random_graph(700, 0.01, seed=0, directed=True)
    case = Case(edges(*graph.edges), 700, None)
    pairs = torch.randint(0, 700, (2, 3000), generator=torch.Generator().manual_seed(0))
    found = walk(
        pairs, case.edge_index, transition_probabilities(*case), torch.tensor([0, 700]), 5, True
    )
    expected = torch.from_numpy(powers(case, 5)).float()
    there, back = expected[:, pairs[0], pairs[1]].t(), expected[:, pairs[1], pairs[0]].t()
    torch.testing.assert_close(found, torch.cat([there, back], 1), atol=1e-6, rtol=0)


@pytest.mark.skipif(not build.available(), reason="no C++ library")
def test_native_walks_do_not_depend_on_the_number_of_threads(monkeypatch) -> None:
    case = Case(edges(*nx.gnp_random_graph(300, 0.05, seed=0).edges), 300, None).symmetric()
    arguments = (all_pairs(300), case.edge_index, transition_probabilities(*case))
    monkeypatch.setattr("grass_gnn.encoding.rrwp._THREAD_NUMBERS", 1 << 60)
    alone = walk_native(*arguments, torch.tensor([0, 300]), 4, True)
    monkeypatch.setattr("grass_gnn.encoding.rrwp._THREAD_NUMBERS", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(walk_native(*arguments, torch.tensor([0, 300]), 4, True), alone)


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("degree", [3, 7])
def test_rows_sum_to_one_after_many_steps(walk, degree: int) -> None:
    # 1/3 and 1/7 are not float32 numbers: their error must not grow with the steps.
    case = Case(edges(*nx.random_regular_graph(degree, 24, seed=0).edges), 24, None).symmetric()
    found = walk(
        all_pairs(24),
        case.edge_index,
        transition_probabilities(*case),
        torch.tensor([0, 24]),
        128,
        False,
    )
    total = found.double().view(24, 24, 128).sum(1)
    assert (total - 1).abs().max() < 1e-6


@given(graphs())
def test_rows_sum_to_one_where_the_walk_can_go_on(case: Case) -> None:
    first = dense_rrwp(case.edge_index, case.num_nodes, 1, case.weight)[0].double().sum(1)
    has_edge = torch.from_numpy(case.adjacency().sum(1) > 0)
    torch.testing.assert_close(first, has_edge.double(), atol=1e-6, rtol=0)
    both = case.symmetric()
    total = dense_rrwp(both.edge_index, both.num_nodes, 20, both.weight).double().sum(2)
    has_edge = torch.from_numpy(both.adjacency().sum(1) > 0)
    torch.testing.assert_close(total, has_edge.double().expand(20, -1), atol=1e-6, rtol=0)


def test_reference_setting_is_obeyed(monkeypatch) -> None:
    monkeypatch.setenv("GRASS_OPS", "reference")
    monkeypatch.setattr("grass_gnn.encoding.rrwp.walk_native", None)
    case = SPECIAL["two nodes"].symmetric()
    found = rrwp_pairs(case.edge_index, case.edge_index, torch.ones(2), 2, 3)
    assert found.tolist() == [[1, 0, 1, 1, 0, 1]] * 2


def test_k_must_be_positive() -> None:
    case = SPECIAL["two nodes"]
    for k in (0, -1):
        with pytest.raises(ValueError, match=f"k must be at least 1, not {k}"):
            dense_rrwp(case.edge_index, 2, k)
        with pytest.raises(ValueError, match="k must be at least 1"):
            AddRRWP(k)
    with pytest.raises(TypeError, match="k must be an integer"):
        rrwp_pairs(case.edge_index, case.edge_index, torch.ones(1), 2, 2.5)


def test_bad_transition() -> None:
    edge_index = SPECIAL["two nodes"].edge_index
    with pytest.raises(ValueError, match=r"transition\[0\] is nan"):
        rrwp_pairs(edge_index, edge_index, torch.tensor([float("nan")]), 2, 3)
    with pytest.raises(ValueError, match="transition must have one value"):
        rrwp_nodes(edge_index, 2, 3, torch.ones(4))


def test_transform_batches_and_pickles() -> None:
    case = SPECIAL["light weights"].symmetric()
    transform = pickle.loads(pickle.dumps(AddRRWP(4, weight_key="w")))
    assert repr(transform) == "AddRRWP(k=4, weight_key='w', attr_name='rrwp')"
    first = transform(Data(edge_index=case.edge_index, num_nodes=3, w=case.weight))
    second = transform(Data(edge_index=edges((0, 1)), num_nodes=2, w=torch.ones(1)))
    expected = torch.from_numpy(powers(case, 4)).float()
    i, j = case.edge_index
    torch.testing.assert_close(first.rrwp, torch.diagonal(expected, dim1=1, dim2=2).t())
    torch.testing.assert_close(
        first.edge_rrwp, torch.cat([expected[:, i, j], expected[:, j, i]]).t()
    )
    assert first.num_edges == 6 and first.num_nodes == 3

    batch = next(iter(DataLoader([first, second], batch_size=2)))
    assert batch.rrwp.shape == (5, 4) and batch.edge_rrwp.shape == (7, 8)
    again = rrwp_pairs(batch.edge_index, batch.edge_index, batch.rrwp_transition, 5, 4, batch.ptr)
    torch.testing.assert_close(again, batch.edge_rrwp)
    torch.testing.assert_close(Batch.to_data_list(batch)[1].rrwp, second.rrwp)

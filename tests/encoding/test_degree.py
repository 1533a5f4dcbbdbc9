import networkx as nx
import pytest
import torch
from graph_cases import SPECIAL, Case, edges, graphs
from hypothesis import given
from torch_geometric.data import Batch, Data

from grass_gnn.encoding import AddDegree, node_degrees


@given(graphs())
def test_degrees_are_row_and_column_sums(case: Case) -> None:
    degree = node_degrees(*case)
    matrix = torch.from_numpy(case.adjacency())
    expected = torch.stack([matrix.sum(1), matrix.sum(0)], dim=1).float()
    torch.testing.assert_close(degree, expected)


def test_degrees_agree_with_networkx() -> None:
    graph = nx.gnp_random_graph(30, 0.2, seed=1, directed=True)
    degree = node_degrees(edges(*graph.edges), 30)
    assert degree[:, 0].tolist() == [graph.out_degree(i) for i in range(30)]
    assert degree[:, 1].tolist() == [graph.in_degree(i) for i in range(30)]


def test_transform_writes_degree_without_features() -> None:
    case = SPECIAL["light weights"]
    data = Data(edge_index=case.edge_index, num_nodes=3, w=case.weight.unsqueeze(1))
    assert AddDegree()(data).degree.tolist() == [[2, 0], [1, 1], [0, 2]]
    torch.testing.assert_close(AddDegree("w")(data).degree[:, 0], torch.tensor([0.3, 0.05, 0]))
    assert repr(AddDegree("w")) == "AddDegree(weight_key='w', attr_name='degree')"
    with pytest.raises(ValueError, match="no 'cost'"):
        AddDegree("cost")(data)
    with pytest.raises(TypeError, match="before batching"):
        AddDegree()(Batch.from_data_list([data]))
    with pytest.raises(ValueError, match="no edge_index"):
        AddDegree()(Data(num_nodes=3))

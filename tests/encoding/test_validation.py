import pytest
import torch

from grass_gnn import validation
from grass_gnn.encoding import dense_rrwp, node_degrees, rrwp_pairs, transition_probabilities


@pytest.mark.parametrize(
    ("edge_index", "error", "message"),
    [
        ([[0, 1], [1, 2]], TypeError, "must be a tensor, not list"),
        (torch.zeros(2, 3), TypeError, "integers.*float32"),
        (torch.zeros(3, 2, dtype=torch.int64), ValueError, r"shape \[2, E\].*\[3, 2\]"),
        (torch.zeros(2, dtype=torch.int64), ValueError, r"shape \[2, E\].*\[2\]"),
        (torch.tensor([[0, 1], [2, 3]]), ValueError, r"edge_index\[1, 1\] is 3.*0 and 2"),
        (torch.tensor([[0, -1], [2, 2]]), ValueError, r"edge_index\[0, 1\] is -1"),
    ],
)
def test_bad_edges(edge_index: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        validation.check_graph(edge_index, 3)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, -2.0], r"weight\[1\] is -2.0.*negative"),
        ([1.0, float("nan")], r"weight\[1\] is nan"),
        ([float("inf"), 1.0], r"weight\[0\] is inf"),
        ([1.0], r"each of the 2 edges.*\[1\]"),
    ],
)
def test_bad_weights(weight: list[float], message: str) -> None:
    edge_index = torch.tensor([[0, 1], [1, 2]])
    for function in (node_degrees, transition_probabilities):
        with pytest.raises(ValueError, match=message):
            function(edge_index, 3, torch.tensor(weight))


def test_int32_edges_are_fine() -> None:
    edge_index = torch.tensor([[0, 1], [1, 0]])
    assert torch.equal(dense_rrwp(edge_index.int(), 2, 3), dense_rrwp(edge_index, 2, 3))
    transition = transition_probabilities(edge_index.int(), 2)
    assert rrwp_pairs(edge_index.int(), edge_index.int(), transition, 2, 3).shape == (2, 6)


@pytest.mark.parametrize(("num_nodes", "error"), [(-1, ValueError), (2.0, TypeError)])
def test_bad_number_of_nodes(num_nodes: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="num_nodes must be"):
        validation.check_graph(torch.zeros(2, 0, dtype=torch.int64), num_nodes)


@pytest.mark.parametrize(
    ("graph_ptr", "message"),
    [
        (torch.tensor([1, 4]), "start at 0"),
        (torch.tensor([0, 3, 2, 4]), "never decrease"),
        (torch.tensor([0, 3]), "end at the number of nodes, 4, not at 3"),
        (torch.tensor([[0, 4]]), r"shape \[B \+ 1\]"),
    ],
)
def test_bad_graph_ptr(graph_ptr: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        validation.check_graph_ptr(graph_ptr, 4)


def test_pairs_across_graphs() -> None:
    edge_index, ptr = torch.tensor([[0, 2], [1, 3]]), torch.tensor([0, 2, 4])
    crossing = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match=r"pairs\[:, 1\] connects nodes of two"):
        rrwp_pairs(crossing, edge_index, torch.ones(2), 4, 2, ptr)
    with pytest.raises(ValueError, match=r"edge_index\[:, 1\] connects nodes of two"):
        rrwp_pairs(edge_index, crossing, torch.ones(2), 4, 2, ptr)

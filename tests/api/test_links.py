"""Link prediction: the pairs without an edge, and reproducibility."""

import random

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from grass_gnn import GrassError
from grass_gnn.api import links
from grass_gnn.api.links import fit_links, predict_links, unconnected_pairs

RING = Data(edge_index=to_undirected(torch.tensor([range(12), [*range(1, 12), 0]])), num_nodes=12)
TINY = {"model.layers": 1, "model.dim": 8, "training.epochs": 1, "evaluation.rewirings": 1}


def test_unconnected_pairs_are_different_and_no_edges_in_either_direction():
    edges = {tuple(pair) for pair in RING.edge_index.t().tolist()}
    pairs = [tuple(pair) for pair in unconnected_pairs(RING, 30, seed=3).t().tolist()]
    assert len({frozenset(pair) for pair in pairs}) == len(pairs) == 30
    assert all(i != j and (i, j) not in edges for i, j in pairs)


def test_a_directed_graph_may_have_the_reverse_of_an_edge():
    directed = Data(edge_index=torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]]), num_nodes=3)
    pairs = unconnected_pairs(directed, 10, seed=0)  # all that there are
    assert {tuple(pair) for pair in pairs.t().tolist()} == {(1, 0), (2, 1)}


def test_an_edge_index_of_pyg_gives_the_same_pairs():
    edges = EdgeIndex(RING.edge_index, sparse_size=(12, 12), sort_order="row")
    found = unconnected_pairs(Data(edge_index=edges, num_nodes=12), 30, seed=3)
    assert torch.equal(found, unconnected_pairs(RING, 30, seed=3))


def test_the_same_seed_gives_the_same_model_whatever_python_draws():
    weights = []
    for state in (1, 2):
        random.seed(state)
        torch.manual_seed(state)
        model = fit_links(RING, settings=TINY, seed=5).model
        weights.append(torch.cat([value.flatten() for value in model.state_dict().values()]))
    assert torch.equal(*weights)


@pytest.fixture
def held_out(monkeypatch):
    """The splits that ``fit_links`` makes, without a training."""
    monkeypatch.setattr(links, "fit", lambda splits, *_, **__: splits)
    return lambda graph: [data for part in fit_links(graph).values() for data in part]


def known_and_queried(data):
    """The pairs of nodes of the known and of the queried edges that exist."""
    known, queried = data.edge_attr[:, 0] == 0, (data.edge_attr[:, 0] == 1) & (data.y == 1)
    return (
        {frozenset(pair) for pair in data.edge_index[:, chosen].t().tolist()}
        for chosen in (known, queried)
    )


def test_no_queried_edge_is_also_known(held_out):
    twice = Data(edge_index=RING.edge_index.repeat(1, 2), num_nodes=12)
    # Features that differ between the directions of an edge do not make a graph directed.
    featured = Data(edge_index=RING.edge_index, edge_attr=torch.arange(24.0), num_nodes=12)
    for graph in (RING, twice, featured):
        for data in held_out(graph):
            known, queried = known_and_queried(data)
            assert queried and not known & queried


def test_self_loops_are_not_queried(held_out):
    loops = torch.arange(12).expand(2, -1)
    directed = Data(edge_index=torch.cat([RING.edge_index[:, :20], loops], dim=1), num_nodes=12)
    for data in held_out(directed):
        _, queried = known_and_queried(data)
        assert all(len(pair) == 2 for pair in queried)


def test_the_order_of_nodes_matters_only_in_directed_graphs():
    """Each row belongs to its pair, also if a pair is given twice or in both orders."""
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    ring = Data(x=x, edge_index=RING.edge_index, num_nodes=12)
    pairs = torch.tensor([[7, 0, 2, 7], [1, 5, 9, 1]])
    model = fit_links(ring, settings=TINY)
    asked = predict_links(model, ring, pairs, rewirings=2).mean
    turned = predict_links(model, ring, pairs.flip(0), rewirings=2).mean
    both = predict_links(model, ring, torch.cat([pairs, pairs.flip(0)], 1), rewirings=2).mean
    torch.testing.assert_close(turned, asked)
    torch.testing.assert_close(both, asked.repeat(2, 1))
    shuffled = predict_links(model, ring, pairs[:, [2, 0, 1]], rewirings=2).mean
    torch.testing.assert_close(shuffled, asked[[2, 0, 1]])
    assert len(asked.unique()) == 3

    one_way = Data(x=x, edge_index=RING.edge_index[:, :20], num_nodes=12)
    model = fit_links(one_way, settings=TINY)
    asked, turned = (predict_links(model, one_way, p, rewirings=2) for p in (pairs, pairs.flip(0)))
    assert not torch.allclose(asked.mean, turned.mean)


def test_invalid_graphs_and_pairs_get_one_clear_error():
    for graph, shares in (
        (Data(num_nodes=4), (8, 1, 1)),
        ("graph", (8, 1, 1)),
        (RING, (0, 0, 0)),
        (RING, (8, 1)),
    ):
        with pytest.raises(GrassError):
            fit_links(graph, shares=shares, settings=TINY)
    model = fit_links(RING, settings=TINY)
    assert predict_links(model, RING, torch.empty(2, 0).long(), rewirings=1).mean.shape == (0, 1)
    pairs = torch.tensor([[0, 5, 2], [3, 7, 9]])
    assert predict_links(model, RING, pairs, rewirings=1).mean.shape == (3, 1)
    for wrong in (pairs.t(), pairs[0], pairs.tolist()):
        with pytest.raises(GrassError, match="pairs"):
            predict_links(model, RING, wrong)
    for wrong in (pairs + 6, pairs - 1, pairs.float()):
        with pytest.raises(GrassError, match="edge_index"):
            predict_links(model, RING, wrong)

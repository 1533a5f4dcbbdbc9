"""Link prediction: the pairs without an edge, and reproducibility."""

import random

import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from grass_gnn.api.links import fit_links, unconnected_pairs

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


def test_the_same_seed_gives_the_same_model_whatever_python_draws():
    weights = []
    for state in (1, 2):
        random.seed(state)
        torch.manual_seed(state)
        model = fit_links(RING, settings=TINY, seed=5).model
        weights.append(torch.cat([value.flatten() for value in model.state_dict().values()]))
    assert torch.equal(*weights)

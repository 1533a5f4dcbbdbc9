"""Relative random walk probabilities: P_hij, the probability of being at j after h steps from i."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from grass_gnn.encoding.graph import read_graph
from grass_gnn.encoding.walks import normalised_rows, walk_probabilities
from grass_gnn.validation import (
    check_graph,
    check_graph_ptr,
    check_pairs,
    check_positive_int,
    check_weights,
    check_within_graphs,
)


def transition_probabilities(
    edge_index: Tensor, num_nodes: int, weight: Tensor | None = None
) -> Tensor:
    """Probability that a walker at the head of an edge takes this edge.

    Summed over parallel edges they are the transition matrix T = D⁻¹A. The rows of nodes without
    outgoing edges (or with weights that are all zero) are zero: the walk ends there.

    Args:
        edge_index: Head and tail of each edge [2, E].
        num_nodes: The number of nodes.
        weight: Weight of each edge [E].

    Returns:
        One probability per edge, float32 [E].
    """
    check_graph(edge_index, num_nodes, weight)
    value = torch.ones_like(edge_index[0]) if weight is None else weight
    return normalised_rows(edge_index[0], value, num_nodes).float()


def rrwp(edge_index: Tensor, num_nodes: int, k: int, weight: Tensor | None = None) -> Tensor:
    """The whole tensor P = [T, T², …, T^k], for graphs small enough to hold it.

    Args:
        edge_index: Head and tail of each edge [2, E].
        num_nodes: The number of nodes.
        k: Number of random walk steps.
        weight: Weight of each edge [E].

    Returns:
        P as float32 [k, n, n].
    """
    check_positive_int("k", k)
    check_graph(edge_index, num_nodes, weight)
    head, tail = edge_index.long()
    value = torch.ones_like(head) if weight is None else weight
    step = torch.zeros(num_nodes, num_nodes, dtype=torch.float64, device=head.device)
    step.index_put_((head, tail), normalised_rows(head, value, num_nodes), accumulate=True)
    powers = [step]
    for _ in range(1, k):
        powers.append(powers[-1] @ step)
    return torch.stack(powers).float()  # [k, n, n]


def rrwp_nodes(
    edge_index: Tensor,
    num_nodes: int,
    k: int,
    transition: Tensor,
    graph_ptr: Tensor | None = None,
) -> Tensor:
    """Probabilities P_ii of being back after 1, …, k steps (the encoding of equation 1).

    Args:
        edge_index: Head and tail of each edge [2, E].
        num_nodes: The number of nodes, of all graphs together.
        k: Number of random walk steps.
        transition: Probability of each edge [E], of :func:`transition_probabilities`.
        graph_ptr: For a batch, the first node of each graph and the number of nodes [B + 1].

    Returns:
        P_ii as float32 [n, k].
    """
    graph_ptr = _check(edge_index, transition, num_nodes, k, graph_ptr)
    pairs = torch.arange(num_nodes, device=edge_index.device).expand(2, -1)
    return walk_probabilities(pairs, edge_index, transition, graph_ptr, k, both=False)


def rrwp_pairs(
    pairs: Tensor,
    edge_index: Tensor,
    transition: Tensor,
    num_nodes: int,
    k: int,
    graph_ptr: Tensor | None = None,
) -> Tensor:
    """Probabilities of walking from i to j and from j to i (the encoding of equation 2).

    Only the pairs asked for are kept, so memory grows with their number and not with k·|V|².

    Args:
        pairs: The pairs (i, j) [2, M], in any order, each within one graph.
        edge_index: Head and tail of each edge [2, E].
        transition: Probability of each edge [E], of :func:`transition_probabilities`.
        num_nodes: The number of nodes, of all graphs together.
        k: Number of random walk steps.
        graph_ptr: For a batch, the first node of each graph and the number of nodes [B + 1].

    Returns:
        P_ij ‖ P_ji as float32 [M, 2k].
    """
    graph_ptr = _check(edge_index, transition, num_nodes, k, graph_ptr)
    check_pairs("pairs", pairs, num_nodes)
    check_within_graphs("pairs", pairs, graph_ptr)
    return walk_probabilities(pairs, edge_index, transition, graph_ptr, k, both=True)


class AddRRWP(BaseTransform):
    """Write random walk probabilities of nodes and edges to a graph.

    They are ``data.rrwp`` [n, k] (P_ii) and ``data.edge_rrwp`` [E, 2k] (P_ij ‖ P_ji). What the
    encoding of edges that are added later needs is kept beside them: ``data.rrwp_edge_index``
    [2, E] and ``data.rrwp_transition`` [E], the edges of the walk and their probabilities.

    Args:
        k: Number of random walk steps.
        weight_key: Name of the edge weights, if walkers are to follow them.
    """

    def __init__(self, k: int, weight_key: str | None = None) -> None:
        check_positive_int("k", k)
        self.k = k
        self.weight_key = weight_key

    def forward(self, data: Data) -> Data:
        """Write ``rrwp``, ``edge_rrwp``, ``rrwp_edge_index`` and ``rrwp_transition``."""
        edges, num_nodes, weight = read_graph(data, self.weight_key)
        transition = transition_probabilities(edges, num_nodes, weight)
        data.rrwp = rrwp_nodes(edges, num_nodes, self.k, transition)
        data.edge_rrwp = rrwp_pairs(edges, edges, transition, num_nodes, self.k)
        data.rrwp_edge_index = edges.clone()
        data.rrwp_transition = transition
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}(k={self.k}, weight_key={self.weight_key!r})"


def _check(
    edge_index: Tensor, transition: Tensor, num_nodes: int, k: int, graph_ptr: Tensor | None
) -> Tensor:
    """Check what both encodings take, and fill in the ``graph_ptr`` of a single graph."""
    check_positive_int("k", k)
    check_graph(edge_index, num_nodes)
    check_weights("transition", transition, edge_index.size(1))
    if graph_ptr is None:
        return torch.tensor([0, num_nodes], device=edge_index.device)
    check_graph_ptr(graph_ptr, num_nodes)
    check_within_graphs("edge_index", edge_index, graph_ptr)
    return graph_ptr.long()

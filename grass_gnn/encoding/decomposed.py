r"""D-RRWP: random walk probabilities from the largest eigenpairs of T_sym.

For an undirected graph :math:`T_{sym} = D^{-1/2} A D^{-1/2} = Q \Lambda Q^\top`, so the probability
of a pair after h steps is a sum over eigenpairs, :math:`\sum_m Q_{im} Q_{jm} \lambda_m^h`. The
vectors are found once; the encoding of any pair follows when the pair is drawn.
"""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from grass_gnn.encoding.decomposition import Directed, decompose
from grass_gnn.encoding.graph import read_graph
from grass_gnn.validation import check_choice, check_pairs, check_positive_int

_TILE_PAIRS = 256  # pairs of one graph that share a matrix product
_CHUNK_NUMBERS = 1 << 20  # of a chunk of tiles, which should stay in cache


def decomposed_nodes(
    vectors: Tensor, values: Tensor, k: int, node_graph: Tensor | None = None
) -> Tensor:
    """The encoding Σ_m Q_im² λ_m^h of each node for h = 1, …, k (equation 1).

    Args:
        vectors: Q [N, m + 1].
        values: λ of the one graph [m + 1], or of each graph [B, m + 1].
        k: Number of random walk steps.
        node_graph: Graph of each node [N], for a batch.

    Returns:
        Node encodings [N, k].
    """
    nodes = torch.arange(vectors.size(0), device=vectors.device)
    return decomposed_pairs(nodes.expand(2, -1), vectors, values, k, node_graph)


def decomposed_pairs(
    pairs: Tensor, vectors: Tensor, values: Tensor, k: int, node_graph: Tensor | None = None
) -> Tensor:
    """The encoding Σ_m Q_im Q_jm λ_m^h of each pair (i, j) for h = 1, …, k (equation 2).

    It is the same for (j, i), so k columns say it all.

    Args:
        pairs: The pairs (i, j) [2, M], in any order, each within one graph.
        vectors: Q [N, m + 1].
        values: λ of the one graph [m + 1], or of each graph [B, m + 1].
        k: Number of random walk steps.
        node_graph: Graph of each node [N], for a batch.

    Returns:
        Pair encodings [M, k].
    """
    check_positive_int("k", k)
    check_pairs("pairs", pairs, vectors.size(0))
    steps = torch.arange(1, k + 1, device=values.device)
    values = values.view(-1, values.size(-1))  # [B, m + 1]
    powers = (values.double().unsqueeze(2) ** steps).to(vectors.dtype)  # [B, m + 1, k]
    if values.size(0) > 1 and node_graph is None:
        raise ValueError(f"values belong to {values.size(0)} graphs: node_graph must be given.")
    if node_graph is None or values.size(0) == 1:
        graph = torch.zeros_like(pairs[0])
    else:
        graph = node_graph[pairs[0]]
        if not torch.equal(graph, node_graph[pairs[1]]):
            crossing = int((graph != node_graph[pairs[1]]).nonzero()[0])
            raise ValueError(f"pairs[:, {crossing}] joins nodes of two different graphs.")

    # Graphs have powers of their own: their pairs are cut into tiles of equal size, the last one of
    # a graph filled up, so that all tiles make one batched matrix product without much filling.
    num_pairs, columns = graph.numel(), vectors.size(1)
    count = torch.bincount(graph, minlength=values.size(0))  # [B]
    tiles = -(count // -_TILE_PAIRS)  # [B]
    tile_graph = torch.repeat_interleave(tiles)  # [tiles]
    order = torch.argsort(graph, stable=True)  # [M]
    shift = (tiles.cumsum(0) - tiles) * _TILE_PAIRS - (count.cumsum(0) - count)  # [B]
    place = torch.arange(num_pairs, device=order.device) + shift[graph[order]]  # [M], among tiles
    pair = order.new_full((tile_graph.numel() * _TILE_PAIRS,), num_pairs)  # of each place, or none
    pair[place] = order

    padded = torch.cat([pairs, pairs.new_zeros(2, 1)], dim=1)  # what fills up goes to a last row
    out = vectors.new_empty(num_pairs + 1, k)
    largest = max(_TILE_PAIRS * k, _TILE_PAIRS * columns, columns * k)  # numbers of a tile
    chunk = max(1, _CHUNK_NUMBERS // largest)  # tiles
    for first in range(0, tile_graph.numel(), chunk):
        rows = pair[first * _TILE_PAIRS : (first + chunk) * _TILE_PAIRS]
        head, tail = padded[:, rows]
        product = (vectors[head] * vectors[tail]).view(-1, _TILE_PAIRS, columns)
        encoding = torch.bmm(product, powers[tile_graph[first : first + chunk]])
        out.index_copy_(0, rows, encoding.view(-1, k))
    return out[:num_pairs]


def rrwp_from_decomposition(
    pairs: Tensor, vectors: Tensor, values: Tensor, degree: Tensor, k: int
) -> Tensor:
    """RRWP of an undirected graph from its eigenpairs, exact when all of them are there.

    T = D^-½ T_sym D^½, so P_hij = d_i^-½ d_j^½ Σ_m Q_im Q_jm λ_m^h.

    Args:
        pairs: The pairs (i, j) [2, M].
        vectors: Q [n, m + 1].
        values: λ [m + 1].
        degree: Degree of each node (the sum of its weights) [n].
        k: Number of random walk steps.

    Returns:
        P_ij [M, k].
    """
    symmetric = decomposed_pairs(pairs, vectors, values, k)  # [M, k]
    head, tail = degree[pairs]  # [M] each
    ratio = torch.where(head > 0, tail / head, 0.0).sqrt()
    return symmetric * ratio.unsqueeze(1).to(symmetric.dtype)


class AddDecomposedRRWP(BaseTransform):
    """Write D-RRWP encodings of nodes and edges to a graph.

    They are ``data.rrwp`` [n, k] and ``data.edge_rrwp`` [E, k]. What the encoding of edges that are
    added later needs is kept beside them: ``data.rrwp_vectors`` [n, m + 1] and ``data.rrwp_values``
    [1, m + 1]. In the alternating form both encodings have 2k columns (walks that begin along the
    edges ‖ against them), and ``data.rrwp_right_vectors`` [n, m + 1] is kept too.

    Args:
        k: Number of random walk steps.
        m: Number of eigenpairs, by default k.
        weight_key: Name of the edge weights, if walkers are to follow them.
        directed: What to do with directed graphs, as in :func:`decompose`.
    """

    def __init__(
        self,
        k: int,
        m: int | None = None,
        weight_key: str | None = None,
        directed: Directed = "error",
    ) -> None:
        check_positive_int("k", k)
        check_choice("directed", directed, get_args(Directed))
        self.k = k
        self.m = k if m is None else m
        check_positive_int("m", self.m)
        self.weight_key = weight_key
        self.directed: Directed = directed

    def forward(self, data: Data) -> Data:
        """Write ``rrwp`` and ``edge_rrwp``, and the decomposition that they come from."""
        edges, num_nodes, weight = read_graph(data, self.weight_key)
        found = decompose(edges, num_nodes, self.m, weight, self.directed)
        data.rrwp_vectors = found.vectors.to(edges.device)
        data.rrwp_values = found.values.to(edges.device).unsqueeze(0)
        if found.right_vectors is not None:
            data.rrwp_right_vectors = found.right_vectors.to(edges.device)
        loops = torch.arange(num_nodes, device=edges.device).expand(2, -1)
        data.rrwp = decomposed_pairs_of(data, loops, self.k)
        data.edge_rrwp = decomposed_pairs_of(data, edges, self.k)
        return data

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(k={self.k}, m={self.m}, weight_key={self.weight_key!r}, "
            f"directed={self.directed!r})"
        )


def decomposed_pairs_of(data: Data, pairs: Tensor, k: int) -> Tensor:
    """Encodings of pairs [2, M] → [M, k] from what :class:`AddDecomposedRRWP` left on graphs."""
    sides = [data.rrwp_vectors]
    if "rrwp_right_vectors" in data:
        sides.append(data.rrwp_right_vectors)
    return torch.cat(
        [decomposed_pairs(pairs, side, data.rrwp_values, k, data.batch) for side in sides], dim=1
    )  # [M, k], alternating [M, 2k]

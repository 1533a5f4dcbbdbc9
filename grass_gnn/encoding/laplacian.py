"""Eigenvectors of the normalised Laplacian, the encoding of the ablation."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from grass_gnn.encoding.base import read_graph
from grass_gnn.encoding.eigen import (
    Array,
    SparseMatrix,
    adjacency,
    eigenpairs,
    is_symmetric,
    normalised,
)
from grass_gnn.validation import check_positive_int


def laplacian_eigenvectors(
    edge_index: Tensor, num_nodes: int, k: int, weight: Tensor | None = None
) -> Tensor:
    """Eigenvectors of L = I − D^-½ A D^-½ for its smallest eigenvalues above the trivial ones.

    Each connected component has one trivial eigenvector (eigenvalue 0), which says no more than the
    degrees do; they are left out. An isolated node is a component of its own, so it has nothing
    else: its row is zero. A graph that is not symmetric is symmetrised (A + Aᵀ).

    Args:
        edge_index: Head and tail of each edge [2, E].
        num_nodes: The number of nodes.
        k: Number of eigenvectors.
        weight: Weight of each edge [E].

    Returns:
        Eigenvectors by rising eigenvalue, float32 [n, k], zero where the graph has fewer.
    """
    check_positive_int("k", k)
    matrix = adjacency(edge_index, num_nodes, weight)
    if not is_symmetric(matrix):
        matrix = matrix + matrix.T
    encoding = torch.zeros(num_nodes, k)
    joined = np.flatnonzero(np.diff(matrix.indptr))  # nodes that have an edge
    if joined.size:
        vectors = _eigenvectors(matrix[joined][:, joined], k)  # [joined, up to k]
        encoding[torch.from_numpy(joined), : vectors.shape[1]] = torch.from_numpy(vectors).float()
    return encoding


def flip_signs(
    node_pe: Tensor,
    edge_pe: Tensor,
    node_graph: Tensor,
    edge_graph: Tensor,
    num_graphs: int,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Give each eigenvector of each graph a random sign, the same for its nodes and edges.

    An eigenvector is as good as its negative: training sees both.

    Args:
        node_pe: Encodings v_i [N, k].
        edge_pe: Encodings v_i ‖ v_j [E, 2k].
        node_graph: Graph of each node [N].
        edge_graph: Graph of each edge [E].
        num_graphs: The number of graphs.
        generator: Source of randomness.
    """
    sign = torch.randint(0, 2, (num_graphs, node_pe.size(1)), generator=generator)  # [B, k]
    sign = (2 * sign - 1).to(node_pe)
    return node_pe * sign[node_graph], edge_pe * sign.repeat(1, 2)[edge_graph]


class AddLaplacianPE(BaseTransform):
    """Write Laplacian eigenvectors to ``data.laplacian_pe`` [n, k] (v_i), and for the edges to
    ``data.edge_laplacian_pe`` [E, 2k] (v_i ‖ v_j).

    Args:
        k: Number of eigenvectors.
        weight_key: Name of the edge weights, if the Laplacian is to be weighted.
    """

    def __init__(self, k: int, weight_key: str | None = None) -> None:
        check_positive_int("k", k)
        self.k = k
        self.weight_key = weight_key

    def forward(self, data: Data) -> Data:
        """Write ``laplacian_pe`` and ``edge_laplacian_pe``."""
        edges, num_nodes, weight = read_graph(data, self.weight_key)
        vectors = laplacian_eigenvectors(edges, num_nodes, self.k, weight)
        data.laplacian_pe = vectors.to(edges.device)
        data.edge_laplacian_pe = laplacian_pairs(data.laplacian_pe, edges)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}(k={self.k}, weight_key={self.weight_key!r})"


def laplacian_pairs(node_pe: Tensor, pairs: Tensor) -> Tensor:
    """The encoding v_i ‖ v_j [M, 2k] of pairs (i, j) [2, M] from the eigenvectors [n, k]."""
    return torch.cat([node_pe[pairs[0]], node_pe[pairs[1]]], dim=1)


def _eigenvectors(matrix: SparseMatrix, k: int) -> Array:
    """Non-trivial eigenvectors of L for a symmetric A without isolated nodes, up to k columns."""
    num_nodes = matrix.shape[0]
    num_components, component = connected_components(matrix, directed=False)
    # The trivial eigenvectors are known: √d on one component, and zero elsewhere.
    root = np.sqrt(np.asarray(matrix.sum(axis=1)).ravel())
    trivial = sp.csr_array(
        (root, (np.arange(num_nodes), component)), shape=(num_nodes, num_components)
    )
    trivial = trivial / np.sqrt(trivial.power(2).sum(axis=0))
    step = normalised(matrix)  # I − L, with eigenvalues in [-1, 1]: its largest are L's smallest

    def without_trivial(x: Array) -> Array:
        return step @ x - 3.0 * (trivial @ (trivial.T @ x))  # moves their eigenvalue from 1 to −2

    operator = LinearOperator(
        step.shape, matvec=without_trivial, matmat=without_trivial, dtype=float
    )
    count = min(k, num_nodes - num_components)
    if count == 0:
        return np.zeros((num_nodes, 0))
    values, vectors = eigenpairs(operator, count, "LA")
    return vectors[:, np.argsort(-values, kind="stable")[:count]]

"""Eigenvectors of the normalised Laplacian, an encoding of the paper's ablation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from grass_gnn.encoding.base import Encoding, Row, Structure, TwoSidedEncoding
from grass_gnn.encoding.eigen import (
    Array,
    SparseMatrix,
    adjacency,
    eigenpairs,
    is_symmetric,
    normalised,
)
from grass_gnn.progress import Progress, silent
from grass_gnn.validation import check_positive_int

if TYPE_CHECKING:
    from torch_geometric.data import Data


def laplacian_eigenvectors(
    edge_index: Tensor, num_nodes: int, k: int, weight: Tensor | None = None
) -> Tensor:
    """Eigenvectors of L = I − D^-½ A D^-½ for its smallest eigenvalues above the trivial ones.

    Each connected component has one trivial eigenvector (eigenvalue 0), which depends on the
    degrees only; these are left out. The row of an isolated node, a component by itself, is zero. A
    graph that is not symmetric is symmetrised (A + Aᵀ).

    Args:
        edge_index: Head and tail of each edge [2, E].
        num_nodes: The number of nodes.
        k: Number of eigenvectors.
        weight: Weight of each edge [E].

    Returns:
        Eigenvectors by increasing eigenvalue, float32 [n, k], zero where the graph has fewer.
    """
    check_positive_int("k", k)
    matrix = adjacency(edge_index, num_nodes, weight)
    if not is_symmetric(matrix):
        matrix = matrix + matrix.T
    encoding = torch.zeros(num_nodes, k, dtype=torch.float32, device="cpu")
    joined = np.flatnonzero(np.diff(matrix.indptr))  # nodes that have an edge
    if joined.size:
        vectors = _eigenvectors(matrix[joined][:, joined], k)  # [joined, up to k]
        encoding[torch.from_numpy(joined), : vectors.shape[1]] = torch.from_numpy(vectors).float()
    return encoding.to(edge_index.device)


def flip_signs(
    node_pe: Tensor,
    edge_pe: Tensor,
    node_graph: Tensor,
    edge_graph: Tensor,
    num_graphs: int,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Give each eigenvector of each graph a random sign, the same for its nodes and edges.

    The sign of an eigenvector is arbitrary, so training sees both.

    Args:
        node_pe: Encodings v_i [N, k].
        edge_pe: Encodings v_i ‖ v_j [E, 2k].
        node_graph: Graph of each node [N].
        edge_graph: Graph of each edge [E].
        num_graphs: The number of graphs.
        generator: Source of randomness.
    """
    device = torch.device("cpu") if generator is None else generator.device
    size = (num_graphs, node_pe.size(1))
    sign = torch.randint(0, 2, size, generator=generator, device=device)  # [B, k]
    sign = (2 * sign - 1).to(node_pe)
    return node_pe * sign[node_graph], edge_pe * sign.repeat(1, 2)[edge_graph]


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


class LaplacianPE(TwoSidedEncoding):
    """Laplacian eigenvectors: nodes v_i [N, k], pairs v_i ‖ v_j [M, 2k].

    Args:
        k: Number of eigenvectors.
        degrees: Degrees appended to the encoding of nodes.
    """

    stored_rows: ClassVar[Mapping[str, Row]] = {"laplacian": "node"}
    spectral = True
    attr_name = "laplacian_pe"

    def _own_stored_columns(self) -> dict[str, int]:
        return {"laplacian": self.k}

    def compute_spectrum(
        self,
        edge_index: Tensor,
        num_nodes: int,
        weight: Tensor | None = None,
        keep: Path | None = None,
        progress: Progress = silent,
    ) -> dict[str, Tensor]:
        """The eigenvectors [n, k]."""
        return {"laplacian": laplacian_eigenvectors(edge_index, num_nodes, self.k, weight)}

    def pairs(self, pairs: Tensor, graphs: Structure) -> Tensor:
        """v_i ‖ v_j of pairs [2, M] → [M, 2k]."""
        return laplacian_pairs(graphs.stored["laplacian"], pairs)

    def random_signs(
        self, nodes: Tensor, pairs: Tensor, edge_index: Tensor, node_graph: Tensor, num_graphs: int
    ) -> tuple[Tensor, Tensor]:
        """Draw a sign for each eigenvector of each graph; degrees keep theirs."""
        flipped, pairs = flip_signs(
            nodes[:, : self.k], pairs, node_graph, node_graph[edge_index[1]], num_graphs
        )
        return torch.cat([flipped, nodes[:, self.k :]], dim=1), pairs

    @staticmethod
    def write(data: Data, name: str, stored: Mapping[str, Tensor]) -> None:
        """Write nothing: the encoding of nodes is all that is needed."""

    @classmethod
    def read(cls, data: Data, name: str) -> dict[str, Tensor] | None:
        """The eigenvectors written to one graph or a batch, if they were."""
        return {"laplacian": data[name]} if name in data else None

    @classmethod
    def of_written(cls, data: Data, name: str) -> tuple[Encoding, dict[str, Tensor]] | None:
        """The encoding that :class:`AddLaplacianPE` wrote to ``data[name]``, if it did."""
        nodes, edges = data[name], data[f"edge_{name}"]
        if not torch.equal(edges, laplacian_pairs(nodes, data.edge_index)):
            return None
        return cls(nodes.size(1)), {"laplacian": nodes}

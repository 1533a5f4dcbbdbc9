"""Normalised adjacency matrices and their eigenpairs, for D-RRWP and Laplacian encodings."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from grass_gnn.validation import check_graph

Array = NDArray[np.float64]
SparseMatrix = Any  # SciPy's sparse arrays have no useful static types

# Measured on one core: up to here a dense solver takes less time than Lanczos iterations do, and
# so it does on larger graphs when more than about a sixth of the eigenpairs are wanted.
_DENSE_NODES = 600
_DENSE_FRACTION = 1 / 6
_LOOK_AGAIN = 4  # eigenpairs to look for when all seem to be found
_RESOLUTION = 1e-10  # eigenvalues this close are the same


def adjacency(edge_index: Tensor, num_nodes: int, weight: Tensor | None = None) -> SparseMatrix:
    """The weights, or numbers, of the edges from i to j as a sparse float64 matrix [n, n]."""
    check_graph(edge_index, num_nodes, weight)
    head, tail = edge_index.cpu().numpy()
    value = np.ones(head.size) if weight is None else weight.detach().cpu().double().numpy()
    matrix = sp.coo_array((value, (head, tail)), shape=(num_nodes, num_nodes)).tocsr()
    matrix.eliminate_zeros()
    return matrix


def is_symmetric(matrix: SparseMatrix) -> bool:
    """Whether the matrix equals its transpose, up to the rounding of float32 weights."""
    return abs(matrix - matrix.T).max() <= 1e-6 * abs(matrix).max() if matrix.nnz else True


def inverse_root(degree: Array) -> Array:
    """d^-½, and 0 for a node of degree 0."""
    return np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)


def normalised(matrix: SparseMatrix) -> SparseMatrix:
    """D_out^-½ A D_in^-½, which is T_sym when A is symmetric."""
    out_scale = sp.diags_array(inverse_root(np.asarray(matrix.sum(axis=1)).ravel()))
    in_scale = sp.diags_array(inverse_root(np.asarray(matrix.sum(axis=0)).ravel()))
    return (out_scale @ matrix @ in_scale).tocsr()


def use_dense(num_nodes: int, count: int) -> bool:
    """Whether ``count`` eigenpairs of ``num_nodes`` are better found by a dense solver."""
    return num_nodes <= _DENSE_NODES or count >= _DENSE_FRACTION * num_nodes


def eigenpairs(
    operator: SparseMatrix | LinearOperator, count: int, which: Literal["LM", "LA"]
) -> tuple[Array, Array]:
    """Eigenvalues [c] and eigenvectors [n, c] of a symmetric operator, in no particular order.

    They are all of them (c = n) from the dense solver, or the ``count`` largest in magnitude
    (``"LM"``) or value (``"LA"``) by Lanczos iterations, which start the same way each time.
    """
    num_nodes = operator.shape[0]
    if use_dense(num_nodes, count):
        identity = np.eye(num_nodes)
        dense = operator.toarray() if sp.issparse(operator) else operator @ identity
        return np.linalg.eigh(dense)
    # Lanczos iterations may miss copies of a multiple eigenvalue (twin components have many). So
    # look again, with what was found moved out of the way, until nothing larger turns up.
    if not np.any(operator @ np.random.default_rng(1).standard_normal(num_nodes)):  # no edges
        return np.zeros(count), np.eye(num_nodes, count)
    random = np.random.default_rng(0)
    floor, size = (0.0, np.abs) if which == "LM" else (-3.0, np.asarray)
    values, vectors = np.empty(0), np.empty((num_nodes, 0))
    wanted = count
    while True:

        def without_found(x: Array, values: Array = values, vectors: Array = vectors) -> Array:
            return operator @ x - vectors @ ((values - floor) * (vectors.T @ x))

        rest = LinearOperator(operator.shape, matvec=without_found, dtype=float)
        more = eigsh(rest, k=wanted, which=which, v0=random.standard_normal(num_nodes))
        if values.size and size(more[0]).max() < size(values).min() + _RESOLUTION:
            return values, vectors
        values, vectors = np.append(values, more[0]), np.append(vectors, more[1], axis=1)
        largest = np.argsort(-size(values), kind="stable")[:count]
        values, vectors = values[largest], vectors[:, largest]
        wanted = min(count, _LOOK_AGAIN)

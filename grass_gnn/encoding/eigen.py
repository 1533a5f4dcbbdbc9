"""Normalised adjacency matrices and their eigenpairs, for D-RRWP and Laplacian encodings.

Small graphs take a dense solver, others SciPy's ``eigsh``. Graphs of :data:`LARGE_NODES` nodes and
more take :func:`leading_eigenpairs`: SciPy's solver can neither be resumed nor report its progress
or residuals, and on a million nodes it runs for long.
"""

from __future__ import annotations

import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from grass_gnn.files import write_whole
from grass_gnn.progress import Progress, silent
from grass_gnn.validation import check_graph

Array = NDArray[np.float64]
SparseMatrix = Any  # SciPy's sparse arrays have no useful static types

# Measured on one core: a dense solver is faster than Lanczos iterations up to this size, and on
# larger graphs when more than about a sixth of the eigenpairs are wanted.
_DENSE_NODES = 600
_DENSE_FRACTION = 1 / 6
_LOOK_AGAIN = 4  # eigenpairs to search for when all seem to be found
_RESOLUTION = 1e-10  # eigenvalues closer than this count as equal


def adjacency(edge_index: Tensor, num_nodes: int, weight: Tensor | None = None) -> SparseMatrix:
    """The adjacency matrix A [n, n], sparse float64: number or total weight of edges i → j."""
    check_graph(edge_index, num_nodes, weight)
    head, tail = edge_index.cpu().numpy()
    value = np.ones(head.size) if weight is None else weight.detach().cpu().double().numpy()
    matrix = sp.coo_array((value, (head, tail)), shape=(num_nodes, num_nodes)).tocsr()
    matrix.eliminate_zeros()
    return matrix


def is_symmetric(matrix: SparseMatrix) -> bool:
    """Whether the matrix equals its transpose, up to the rounding of float32 weights."""
    if not matrix.nnz:
        return True
    # Relative to each pair of weights: a light edge is as directed as a heavy one.
    difference, size = abs(matrix - matrix.T), abs(matrix) + abs(matrix.T)
    return bool((difference - 1e-6 * size).max() <= 0)


def inverse_root(degree: Array) -> Array:
    """d^-½, and 0 for a node of degree 0."""
    return np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)


def normalised(matrix: SparseMatrix) -> SparseMatrix:
    """D_out^-½ A D_in^-½, which is T_sym when A is symmetric."""
    out_scale = sp.diags_array(inverse_root(np.asarray(matrix.sum(axis=1)).ravel()))
    in_scale = sp.diags_array(inverse_root(np.asarray(matrix.sum(axis=0)).ravel()))
    return (out_scale @ matrix @ in_scale).tocsr()


def use_dense(num_nodes: int, count: int) -> bool:
    """Whether a dense solver is faster for ``count`` eigenpairs of ``num_nodes`` nodes."""
    return num_nodes <= _DENSE_NODES or count >= _DENSE_FRACTION * num_nodes


def eigenpairs(
    operator: SparseMatrix | LinearOperator, count: int, which: Literal["LM", "LA"]
) -> tuple[Array, Array]:
    """Eigenvalues [c] and eigenvectors [n, c] of a symmetric operator, in no particular order.

    A dense solver returns all of them (c = n). Lanczos iterations, with a fixed random start,
    return the ``count`` largest in magnitude (``"LM"``) or value (``"LA"``).
    """
    num_nodes = operator.shape[0]
    if use_dense(num_nodes, count):
        identity = np.eye(num_nodes)
        dense = operator.toarray() if sp.issparse(operator) else operator @ identity
        return np.linalg.eigh(dense)
    # Lanczos iterations may miss copies of a multiple eigenvalue (identical components have many).
    # Repeat with the eigenpairs found so far deflated, until nothing larger appears.
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


LARGE_NODES = 100_000  # nodes from which leading_eigenpairs is used
TOLERANCE = 1e-4  # largest residual ‖T q − λ q‖ of a converged eigenpair
_RESTARTS = 200  # most restarts
_EXTRA = 40  # basis vectors beyond twice the wanted number
_COLUMNS = 1 << 16  # nodes processed at a time in a restart


class Leading(NamedTuple):
    """The eigenpairs that are largest in magnitude, and how accurate they are."""

    values: Array  # [c]
    vectors: Array  # [n, c]
    residual: float  # largest ‖T q − λ q‖
    products: int  # matrix-vector products that were computed


@dataclass
class _State:
    """State at a restart: basis vectors, and the Ritz value of each but the last."""

    basis: Array  # [s + 1, n], of which the first ``len(values) + 1`` rows are set
    values: Array
    restarts: int = 0
    products: int = 0
    smallest: float = -1.0  # smallest magnitude when all eigenpairs last converged
    done: bool = False


def leading_eigenpairs(
    operator: SparseMatrix | LinearOperator,
    count: int,
    keep: Path | None = None,
    progress: Progress = silent,
    tolerance: float = TOLERANCE,
    most_restarts: int = _RESTARTS,
    save_seconds: float = 60.0,
) -> Leading:
    """Compute the ``count`` eigenpairs of a symmetric operator that are largest in magnitude.

    The method is thick-restart Lanczos with full reorthogonalisation.

    Args:
        operator: The operator [n, n].
        count: Number of eigenpairs, far fewer than n.
        keep: File to which the state is saved, and from which a later call resumes; it is not
            deleted.
        progress: Called with the number of converged eigenpairs.
        tolerance: Largest residual ‖T q − λ q‖.
        most_restarts: Stop after this many restarts, converged or not.
        save_seconds: Shortest time between two saves of the state.
    """
    num_nodes = operator.shape[0]
    size = min(2 * count + _EXTRA, num_nodes - 1)
    kept = (size + count) // 2
    state = _read(keep, num_nodes, size, kept) or _start(num_nodes, size)
    saved = time.monotonic()
    while not state.done:
        matrix, rest = _extend(operator, state, size)
        values, mix = np.linalg.eigh(matrix)  # [s], [s, s]
        largest = np.argsort(-np.abs(values), kind="stable")[:kept]
        values, mix = values[largest], mix[:, largest]
        _mix_rows(state.basis, mix)
        state.basis[kept] = state.basis[size]
        state.values, state.restarts = values, state.restarts + 1

        found = rest * np.abs(mix[-1, :count]) <= tolerance  # the residuals of Ritz pairs
        progress("Eigenpairs", int(found.sum()), count)
        if found.all():
            # A Krylov space holds one vector of a multiple eigenvalue, but identical components
            # have many. Restart from another random vector until nothing larger appears.
            smallest = float(np.abs(values[count - 1]))
            state.done = state.smallest >= 0 and smallest <= state.smallest + tolerance
            state.smallest = smallest
            state.basis[kept] = _random(state.basis[:kept], state.restarts)
        state.done |= state.restarts >= most_restarts
        if keep is not None and (state.done or time.monotonic() - saved >= save_seconds):
            _write(keep, state)
            saved = time.monotonic()
    vectors = state.basis[:count].T  # [n, c]
    values = state.values[:count]
    residual = max(
        float(np.linalg.norm(operator @ vector - value * vector))
        for value, vector in zip(values, vectors.T, strict=True)
    )
    return Leading(values, vectors, residual, state.products + count)


def _start(num_nodes: int, size: int) -> _State:
    basis = np.zeros((size + 1, num_nodes))
    basis[0] = _random(basis[:0], 0)
    return _State(basis, np.empty(0))


def _random(basis: Array, number: int) -> Array:
    """A random unit vector orthogonal to the rows of a basis."""
    vector = np.random.default_rng(number).standard_normal(basis.shape[1:])
    for _ in range(2):
        vector -= (basis @ vector) @ basis
    return vector / np.linalg.norm(vector)


def _extend(
    operator: SparseMatrix | LinearOperator, state: _State, size: int
) -> tuple[Array, float]:
    """Extend the basis to ``size`` + 1 rows.

    Returns:
        The projection of the operator onto the first ``size`` rows [s, s], and the norm of the
        residual vector.
    """
    first, basis = len(state.values), state.basis
    matrix = np.zeros((size, size))
    matrix[range(first), range(first)] = state.values
    length = 0.0
    for row in range(first, size):
        vector = operator @ basis[row]
        state.products += 1
        scale = np.linalg.norm(vector)
        for _ in range(2):  # twice, because rounding would destroy the orthogonality
            overlap = basis[: row + 1] @ vector
            vector -= overlap @ basis[: row + 1]
            matrix[row, : row + 1] += overlap
        matrix[: row + 1, row] = matrix[row, : row + 1]
        length = float(np.linalg.norm(vector))
        if length <= 1e-12 * max(float(scale), 1.0):  # an invariant subspace
            length = 0.0
            basis[row + 1] = _random(basis[: row + 1], state.products)
        else:
            basis[row + 1] = vector / length
    return matrix, length


def _mix_rows(basis: Array, mix: Array) -> None:
    """Replace the first k rows by combinations [s, k] of the first s, without a second basis."""
    size, kept = mix.shape
    for first in range(0, basis.shape[1], _COLUMNS):
        columns = slice(first, first + _COLUMNS)
        basis[:kept, columns] = mix.T @ basis[:size, columns]


def _write(path: Path, state: _State) -> None:
    numbers = np.array([state.restarts, state.products, state.done])
    with write_whole(path) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            basis=state.basis[: len(state.values) + 1],
            values=state.values,
            numbers=numbers,
            smallest=np.array(state.smallest),
        )


def _read(path: Path | None, num_nodes: int, size: int, kept: int) -> _State | None:
    """The saved state, unless it is missing, damaged, or belongs to another problem."""
    if path is None or not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            rows, values = file["basis"], file["values"]
            restarts, products, done = file["numbers"].tolist()
            smallest = float(file["smallest"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if rows.shape != (kept + 1, num_nodes) or values.shape != (kept,):
        return None
    basis = np.zeros((size + 1, num_nodes))
    basis[: kept + 1] = rows
    return _State(basis, values, restarts, products, smallest, bool(done))

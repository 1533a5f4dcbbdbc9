"""The largest eigenpairs of T_sym, or of its like on directed graphs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from grass_gnn.encoding.krylov import LARGE_NODES, leading_eigenpairs
from grass_gnn.encoding.spectrum import (
    Array,
    SparseMatrix,
    adjacency,
    eigenpairs,
    is_symmetric,
    normalised,
    use_dense,
)
from grass_gnn.files import write_json
from grass_gnn.progress import Progress, silent
from grass_gnn.validation import check_choice, check_positive_int

Directed = Literal["error", "symmetrize", "alternating"]

_TIE = 1e-9  # eigenvalues this close count as equal

logger = logging.getLogger(__name__)


class Decomposition(NamedTuple):
    """The largest eigenpairs of T_sym, which give the encoding of any pair.

    There are m + 1 columns: the last holds the partner of λ_m where −λ_m is an eigenvalue too (on
    bipartite graphs), so that no pair ±λ is cut in two, and is zero elsewhere.
    """

    vectors: Tensor  # [n, m + 1] float32: Q; alternating: U
    values: Tensor  # [m + 1] float32: λ, by falling magnitude; alternating: σ²
    error: float  # largest |λ| (alternating: σ²) left out: the spectral norm of the remainder
    right_vectors: Tensor | None = None  # [n, m + 1] float32: V, of the alternating form only
    residual: float = 0.0  # largest ‖T q − λ q‖ on large graphs; elsewhere it is rounding


def decompose(
    edge_index: Tensor,
    num_nodes: int,
    m: int,
    weight: Tensor | None = None,
    directed: Directed = "error",
    keep: Path | None = None,
    progress: Progress = silent,
) -> Decomposition:
    r"""Find the m eigenpairs of T_sym that are largest in magnitude (all of them if m ≥ n).

    A graph whose edges are not the same in both directions has no T_sym. It can be symmetrised
    (:math:`A + A^\top`), or walked along and against its edges in turn: with the singular value
    decomposition :math:`D_{out}^{-1/2} A D_{in}^{-1/2} = U S V^\top`, h double steps are
    :math:`U S^{2h} U^\top` if they begin along the edges, and :math:`V S^{2h} V^\top` if against.

    Args:
        edge_index: Head and tail of each edge [2, E].
        num_nodes: The number of nodes.
        m: Number of eigenpairs.
        weight: Weight of each edge [E].
        directed: What to do with a graph that is not symmetric: refuse it (``"error"``) or
            ``"symmetrize"`` it; ``"alternating"`` is used on all graphs alike.
        keep: Of a large graph, a file without suffix: ``.npz`` keeps what was found so far, from
            which a later call goes on, and ``.json`` says how exact the result is.
        progress: Of a large graph, told how many eigenpairs are found.
    """
    check_positive_int("m", m)
    check_choice("directed", directed, get_args(Directed))
    matrix = adjacency(edge_index, num_nodes, weight)
    if directed == "alternating":
        return _decompose_alternating(normalised(matrix), m, keep, progress)
    if not is_symmetric(matrix):
        if directed == "error":
            raise ValueError(
                "The graph has edges without an equal reverse edge, which D-RRWP cannot take as "
                'they are: choose directed="symmetrize" or directed="alternating", or use RRWP.'
            )
        matrix = matrix + matrix.T
    # One eigenpair more to see a ± tie at the cut, and another to know what is left out.
    values, vectors, residual = _largest(normalised(matrix), m + 2, keep, progress)
    tie = max(_TIE, residual / 100)  # eigenvalues are far more exact than their vectors
    order = _by_magnitude(values, tie)
    values, vectors = values[order], vectors[:, order]
    kept = min(m, num_nodes)
    # Equal magnitudes alternate, λ before −λ: only after a λ can the cut part it from its −λ.
    if kept < num_nodes and abs(values[kept - 1] + values[kept]) < tie < values[kept - 1]:
        kept += 1
    error = float(abs(values[kept])) if kept < num_nodes else 0.0
    _state_error(num_nodes, kept, residual, error, keep)
    vectors, values = vectors[:, :kept], values[:kept]
    return Decomposition(_pad(vectors, m), _pad(values, m), error, None, residual)


def _largest(
    operator: SparseMatrix | LinearOperator, count: int, keep: Path | None, progress: Progress
) -> tuple[Array, Array, float]:
    """The ``count`` largest eigenpairs (or all) and their residual, by what suits the size."""
    if operator.shape[0] < LARGE_NODES or use_dense(operator.shape[0], count):
        return (*eigenpairs(operator, count, "LM"), 0.0)
    state = None if keep is None else keep.with_name(f"{keep.name}.npz")
    found = leading_eigenpairs(operator, count, state, progress)
    return found.values, found.vectors, found.residual


def _state_error(
    num_nodes: int, kept: int, residual: float, error: float, keep: Path | None
) -> None:
    """Say how exact the eigenpairs of a large graph are, and what is left out."""
    if not residual:
        return
    logger.warning(
        "The %d eigenpairs of %s nodes have residuals of at most %.1e; all others are at most %.4f "
        "in magnitude.",
        kept,
        f"{num_nodes:,}",
        residual,
        error,
    )
    if keep is not None:
        account = {"nodes": num_nodes, "eigenpairs": kept, "residual": residual, "left_out": error}
        write_json(keep.with_name(f"{keep.name}.json"), account)


def _decompose_alternating(
    matrix: SparseMatrix, m: int, keep: Path | None, progress: Progress
) -> Decomposition:
    num_nodes = matrix.shape[0]

    def double_step(x: Array) -> Array:
        return matrix @ (matrix.T @ x)

    operator = LinearOperator(matrix.shape, matvec=double_step, matmat=double_step, dtype=float)
    values, left, residual = _largest(operator, m + 1, keep, progress)
    order = np.argsort(-values, kind="stable")
    values, left = values[order].clip(min=0.0), left[:, order]
    kept = min(m, num_nodes)
    error = float(values[kept]) if kept < num_nodes else 0.0
    values, left = values[:kept], left[:, :kept]
    _state_error(num_nodes, kept, residual, error, keep)
    # v = Mᵀu / σ; where σ is zero its powers are too, and any v will do.
    right = (matrix.T @ left) * np.sqrt(np.divide(1.0, values, where=values > _TIE, out=0 * values))
    return Decomposition(_pad(left, m), _pad(values, m), error, _pad(right, m), residual)


def _by_magnitude(values: Array, tie: float) -> NDArray[np.intp]:
    """The order of falling magnitude in which equal magnitudes alternate: λ, −λ, λ, −λ, …"""
    order = np.argsort(-abs(values), kind="stable")
    magnitude = abs(values[order])
    group = np.cumsum(np.diff(magnitude, prepend=magnitude[:1]) < -tie)
    negative = values[order] < 0
    # How many values of the same group and sign come before.
    label = 2 * group + negative
    rank = np.empty(order.size, dtype=np.intp)
    by_label = np.argsort(label, kind="stable")
    count = np.bincount(label)
    rank[by_label] = np.arange(order.size) - (np.cumsum(count) - count)[label[by_label]]
    return order[np.lexsort((negative, rank, group))]


def _pad(columns: Array, m: int) -> Tensor:
    """As float32, with zeros up to m + 1 in the last dimension."""
    padded = np.zeros((*columns.shape[:-1], m + 1), dtype=np.float32)
    padded[..., : columns.shape[-1]] = columns
    return torch.from_numpy(padded)

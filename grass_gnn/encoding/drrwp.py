"""D-RRWP: random walk encodings from the largest eigenpairs of T_sym (equations 1 and 2)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from grass_gnn.config import EncodingConfig
from grass_gnn.encoding.base import Degrees, Encoding, Row, Structure
from grass_gnn.encoding.eigen import (
    LARGE_NODES,
    Array,
    SparseMatrix,
    adjacency,
    eigenpairs,
    is_symmetric,
    leading_eigenpairs,
    normalised,
    use_dense,
)
from grass_gnn.files import write_json
from grass_gnn.progress import Progress, silent
from grass_gnn.validation import check_choice, check_pairs, check_positive_int

if TYPE_CHECKING:
    from torch_geometric.data import Data


Directed = Literal["error", "symmetrize", "alternating"]

_TIE = 1e-9  # eigenvalues this close count as equal

logger = logging.getLogger(__name__)


class Decomposition(NamedTuple):
    """The largest eigenpairs of T_sym, from which any pair can be encoded.

    There are m + 1 columns. The last is zero unless −λ_m is also an eigenvalue (on bipartite
    graphs): it then holds that eigenpair, so that no pair ±λ is separated.
    """

    vectors: Tensor  # [n, m + 1] float32: Q; alternating: U
    values: Tensor  # [m + 1] float32: λ, by decreasing magnitude; alternating: σ²
    error: float  # largest |λ| (alternating: σ²) left out: the spectral norm of the remainder
    right_vectors: Tensor | None = None  # [n, m + 1] float32: V, in the alternating form only
    residual: float = 0.0  # largest ‖T q − λ q‖ on large graphs; on others, only rounding errors

    def to(self, device: torch.device) -> Decomposition:
        """The same decomposition on another device."""
        right = None if self.right_vectors is None else self.right_vectors.to(device)
        return self._replace(
            vectors=self.vectors.to(device), values=self.values.to(device), right_vectors=right
        )


def decompose(
    edge_index: Tensor,
    num_nodes: int,
    m: int,
    weight: Tensor | None = None,
    directed: Directed = "error",
    keep: Path | None = None,
    progress: Progress = silent,
) -> Decomposition:
    r"""Compute the m eigenpairs of T_sym that are largest in magnitude (all of them if m ≥ n).

    A directed graph has no T_sym. It can be symmetrised (:math:`A + A^\top`), or walked
    alternately along and against its edges: with the singular value decomposition
    :math:`D_{out}^{-1/2} A D_{in}^{-1/2} = U S V^\top`, h double steps are
    :math:`U S^{2h} U^\top` if they begin along the edges, and :math:`V S^{2h} V^\top` otherwise.

    Args:
        edge_index: Head and tail of each edge [2, E].
        num_nodes: The number of nodes.
        m: Number of eigenpairs.
        weight: Weight of each edge [E].
        directed: How to treat a graph that is not symmetric: raise an error (``"error"``) or
            ``"symmetrize"`` it. ``"alternating"`` applies to all graphs.
        keep: For large graphs, a path without suffix: the state of the search is saved in
            ``.npz``, from which a later call resumes, and its accuracy in ``.json``.
        progress: For large graphs, called with the number of eigenpairs found so far.

    Returns:
        The eigenpairs, on the device of ``edge_index``.
    """
    check_positive_int("m", m)
    check_choice("directed", directed, get_args(Directed))
    matrix = adjacency(edge_index, num_nodes, weight)
    if directed == "alternating":
        found = _decompose_alternating(normalised(matrix), m, keep, progress)
        return found.to(edge_index.device)
    if not is_symmetric(matrix):
        if directed == "error":
            raise ValueError(
                "The graph has edges without an equal reverse edge, but D-RRWP is for undirected "
                'graphs: choose directed="symmetrize" or directed="alternating", or use RRWP.'
            )
        matrix = matrix + matrix.T
    # One more eigenpair to detect a pair ±λ at the cut, and another to know the error.
    values, vectors, residual = _largest(normalised(matrix), m + 2, keep, progress)
    tie = max(_TIE, residual / 100)  # eigenvalues are far more accurate than eigenvectors
    order = _by_magnitude(values, tie)
    values, vectors = values[order], vectors[:, order]
    kept = min(m, num_nodes)
    # Equal magnitudes alternate, λ before −λ, so the cut can separate a pair only after a λ.
    if kept < num_nodes and abs(values[kept - 1] + values[kept]) < tie < values[kept - 1]:
        kept += 1
    error = float(abs(values[kept])) if kept < num_nodes else 0.0
    _state_error(num_nodes, kept, residual, error, keep)
    vectors, values = vectors[:, :kept], values[:kept]
    found = Decomposition(_pad(vectors, m), _pad(values, m), error, None, residual)
    return found.to(edge_index.device)


def _largest(
    operator: SparseMatrix | LinearOperator, count: int, keep: Path | None, progress: Progress
) -> tuple[Array, Array, float]:
    """The ``count`` largest eigenpairs (or all) and their residual, by the solver for this size."""
    if operator.shape[0] < LARGE_NODES or use_dense(operator.shape[0], count):
        return (*eigenpairs(operator, count, "LM"), 0.0)
    state = None if keep is None else keep.with_name(f"{keep.name}.npz")
    found = leading_eigenpairs(operator, count, state, progress)
    return found.values, found.vectors, found.residual


def _state_error(
    num_nodes: int, kept: int, residual: float, error: float, keep: Path | None
) -> None:
    """Report the accuracy of the eigenpairs of a large graph."""
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
    # v = Mᵀu / σ. Where σ is zero, so are its powers, and v does not matter.
    right = (matrix.T @ left) * np.sqrt(np.divide(1.0, values, where=values > _TIE, out=0 * values))
    return Decomposition(_pad(left, m), _pad(values, m), error, _pad(right, m), residual)


def _by_magnitude(values: Array, tie: float) -> NDArray[np.intp]:
    """Order by decreasing magnitude, where equal magnitudes alternate: λ, −λ, λ, −λ, …"""
    order = np.argsort(-abs(values), kind="stable")
    magnitude = abs(values[order])
    group = np.cumsum(np.diff(magnitude, prepend=magnitude[:1]) < -tie)
    negative = values[order] < 0
    # Number of preceding values with the same group and sign.
    label = 2 * group + negative
    rank = np.empty(order.size, dtype=np.intp)
    by_label = np.argsort(label, kind="stable")
    count = np.bincount(label)
    rank[by_label] = np.arange(order.size) - (np.cumsum(count) - count)[label[by_label]]
    return order[np.lexsort((negative, rank, group))]


def _pad(columns: Array, m: int) -> Tensor:
    """Convert to float32 and pad the last dimension with zeros to m + 1."""
    padded = np.zeros((*columns.shape[:-1], m + 1), dtype=np.float32)
    padded[..., : columns.shape[-1]] = columns
    return torch.from_numpy(padded)


_TILE_PAIRS = 256  # pairs of one graph that share a matrix product
_CHUNK_NUMBERS = 1 << 20  # numbers in a chunk of tiles, which should fit in the cache


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

    It is the same for (j, i), so k columns are enough.

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
            raise ValueError(f"pairs[:, {crossing}] connects nodes of two different graphs.")

    # Each graph has its own powers. Pairs are grouped by graph into tiles of equal size (the last
    # tile of a graph is padded), so that all tiles form one batched matrix product.
    num_pairs, columns = graph.numel(), vectors.size(1)
    count = torch.bincount(graph, minlength=values.size(0))  # [B]
    tiles = -(count // -_TILE_PAIRS)  # [B]
    tile_graph = torch.repeat_interleave(tiles)  # [tiles]
    order = torch.argsort(graph, stable=True)  # [M]
    shift = (tiles.cumsum(0) - tiles) * _TILE_PAIRS - (count.cumsum(0) - count)  # [B]
    place = torch.arange(num_pairs, device=order.device) + shift[graph[order]]  # [M] rows
    pair = order.new_full((tile_graph.numel() * _TILE_PAIRS,), num_pairs)  # in each row, or padding
    pair[place] = order

    padded = torch.cat([pairs, pairs.new_zeros(2, 1)], dim=1)  # padding goes to the last row
    out = vectors.new_empty(num_pairs + 1, k)
    largest = max(_TILE_PAIRS * k, _TILE_PAIRS * columns, columns * k)  # numbers of a tile
    chunk = max(1, _CHUNK_NUMBERS // largest)  # tiles
    for first in range(0, tile_graph.numel(), chunk):
        rows = pair[first * _TILE_PAIRS : (first + chunk) * _TILE_PAIRS]
        head, tail = padded.index_select(1, rows)
        product = vectors.index_select(0, head).mul_(vectors.index_select(0, tail))
        product = product.view(-1, _TILE_PAIRS, columns)
        encoding = torch.bmm(product, powers[tile_graph[first : first + chunk]])
        out.index_copy_(0, rows, encoding.view(-1, k))
    return out[:num_pairs]


def rrwp_from_decomposition(
    pairs: Tensor, vectors: Tensor, values: Tensor, degree: Tensor, k: int
) -> Tensor:
    """RRWP of an undirected graph from its eigenpairs; exact if all of them are given.

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


class DecomposedRRWP(Encoding):
    """RRWP of T_sym from its leading eigenpairs, for graphs too large for walks.

    It is symmetric in i and j, so nodes and pairs have k columns each; the alternating form has
    2k, for walks that begin along the edges and against them.

    Args:
        k: Number of random walk steps.
        m: Number of eigenpairs.
        directed: How to treat directed graphs, as in :func:`decompose`.
        degrees: Degrees appended to the encoding of nodes.
    """

    stored_rows: ClassVar[Mapping[str, Row]] = {"vectors": "node", "values": "graph"}
    spectral = True
    costly_pairs = True
    attr_name = "rrwp"

    def __init__(
        self, k: int, m: int, directed: Directed = "error", degrees: Degrees = "none"
    ) -> None:
        super().__init__(degrees)
        self.k, self.m, self.directed = k, m, directed
        self.sides = 2 if directed == "alternating" else 1

    @classmethod
    def from_config(cls, config: EncodingConfig) -> Self:
        """The encoding with the settings of a configuration."""
        return cls(config.steps, config.num_eigenpairs, config.directed, config.degrees)

    @property
    def own_columns(self) -> int:
        """Σ_m Q_im² λ_m^h for h = 1, …, k, of each side."""
        return self.sides * self.k

    @property
    def pair_columns(self) -> int:
        """Σ_m Q_im Q_jm λ_m^h for h = 1, …, k, of each side."""
        return self.sides * self.k

    def _own_stored_columns(self) -> dict[str, int]:
        # U ‖ V in the alternating form
        return {"vectors": self.sides * (self.m + 1), "values": self.m + 1}

    def compute_spectrum(
        self,
        edge_index: Tensor,
        num_nodes: int,
        weight: Tensor | None = None,
        keep: Path | None = None,
        progress: Progress = silent,
    ) -> dict[str, Tensor]:
        """Eigenvectors [n, m + 1] (alternating [n, 2(m + 1)]) and eigenvalues [1, m + 1]."""
        found = decompose(edge_index, num_nodes, self.m, weight, self.directed, keep, progress)
        vectors = found.vectors
        if found.right_vectors is not None:
            vectors = torch.cat([vectors, found.right_vectors], dim=1)
        return {"vectors": vectors, "values": found.values.unsqueeze(0)}

    def pairs(self, pairs: Tensor, graphs: Structure) -> Tensor:
        """Encodings of pairs [2, M] → [M, k], alternating [M, 2k]."""
        values = graphs.stored["values"]
        node_graph = torch.repeat_interleave(graphs.graph_ptr.diff())  # [N]
        found = [
            decomposed_pairs(pairs, vectors, values, self.k, node_graph)
            for vectors in graphs.stored["vectors"].chunk(self.sides, dim=1)
        ]
        return found[0] if self.sides == 1 else torch.cat(found, dim=1)

    @staticmethod
    def write(data: Data, name: str, stored: Mapping[str, Tensor]) -> None:
        """Write ``{name}_vectors``, ``{name}_values`` and maybe ``{name}_right_vectors``."""
        vectors, values = stored["vectors"], stored["values"]
        data[f"{name}_vectors"] = vectors[:, : values.size(1)].contiguous()
        data[f"{name}_values"] = values
        if vectors.size(1) > values.size(1):
            data[f"{name}_right_vectors"] = vectors[:, values.size(1) :].contiguous()

    @classmethod
    def read(cls, data: Data, name: str) -> dict[str, Tensor] | None:
        """The eigenpairs that :meth:`write` left on one graph or a batch, if it did."""
        stored, right = super().read(data, name), data.get(f"{name}_right_vectors")
        if stored is not None and right is not None:
            stored["vectors"] = torch.cat([stored["vectors"], right], dim=1)
        return stored

    @classmethod
    def of_written(cls, data: Data, name: str) -> tuple[Encoding, dict[str, Tensor]] | None:
        """The encoding that :class:`AddDecomposedRRWP` wrote to ``data[name]``, if it did."""
        stored = cls.read(data, name)
        if stored is None:
            return None
        columns = stored["values"].size(1)
        alternating = stored["vectors"].size(1) > columns
        steps = data[name].size(1) // (2 if alternating else 1)
        return cls(steps, columns - 1, "alternating" if alternating else "symmetrize"), stored

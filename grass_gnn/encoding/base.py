"""The interface of structural encodings, as used by the rest of the package.

To add an encoding, write a subclass of :class:`Encoding` in a file of its own, list it in
``ENCODINGS`` (``encoding/__init__.py``), and add its name to ``EncodingConfig.kind``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

from grass_gnn.config import EncodingConfig
from grass_gnn.encoding.graph import graph_checksums
from grass_gnn.errors import GrassError
from grass_gnn.progress import Progress, silent
from grass_gnn.validation import check_graph


def node_degrees(edge_index: Tensor, num_nodes: int, weight: Tensor | None = None) -> Tensor:
    """Out-degree d⁺ and in-degree d⁻ of each node (equation 3).

    Each of several parallel edges counts, and a self-loop counts once in both degrees.

    Args:
        edge_index: Head and tail of each edge [2, E].
        num_nodes: The number of nodes.
        weight: Weight of each edge [E]; a degree is then a sum of weights.

    Returns:
        d⁺ ‖ d⁻ as float32 [n, 2].
    """
    check_graph(edge_index, num_nodes, weight)
    # Sums in float64, so that large counts stay exact.
    value = torch.ones_like(edge_index[0]) if weight is None else weight
    degree = torch.zeros(2, num_nodes, dtype=torch.float64, device=edge_index.device)
    for row, nodes in zip(degree, edge_index, strict=True):
        row.index_add_(0, nodes, value.double())
    return degree.t().float().contiguous()  # [n, 2]


if TYPE_CHECKING:
    from torch_geometric.data import Data


Row = Literal["node", "edge", "graph"]
Degrees = Literal["out-in", "out-out", "none"]


class Structure(NamedTuple):
    """Graphs laid end to end, as an encoding sees them: their input edges and stored tensors."""

    edge_index: Tensor  # [2, E]
    graph_ptr: Tensor  # [B + 1] first node of each graph
    stored: Mapping[str, Tensor]  # as computed by the encoding


class Encoding(ABC):
    """A structural encoding of nodes and of pairs of nodes (equations 1 to 3).

    What follows from the graph alone is computed once and stored (:meth:`compute`, and
    :meth:`compute_spectrum` for encodings that need eigenvectors); the encodings of the pairs that
    a rewired batch happens to have are computed from it (:meth:`pairs`). Degrees, which any
    encoding can be combined with, are handled here.

    Args:
        degrees: Degrees appended to the encoding of nodes: d⁺ ‖ d⁻, d⁺ ‖ d⁺, or none.
    """

    stored_rows: ClassVar[Mapping[str, Row]] = {}
    """Names of the stored tensors (besides ``degree``), and what a row of each belongs to."""

    spectral: ClassVar[bool] = False
    """Whether the stored tensors come from :meth:`compute_spectrum`, graph by graph."""

    local: ClassVar[bool] = True
    """Whether a pair can be encoded from the stored rows of its two nodes and of its graph, so that
    a part of a large graph is encoded as in the whole graph."""

    costly_pairs: ClassVar[bool] = False
    """Whether the encodings of the input edges of a single large graph are worth keeping."""

    attr_name: ClassVar[str] = ""
    """Name under which the PyG transform writes node encodings by default."""

    def __init__(self, degrees: Degrees = "none") -> None:
        self.degrees = degrees

    @classmethod
    @abstractmethod
    def from_config(cls, config: EncodingConfig) -> Self:
        """The encoding with the settings of a configuration."""

    @property
    @abstractmethod
    def own_columns(self) -> int:
        """Columns of the node encoding without degrees."""

    @property
    @abstractmethod
    def pair_columns(self) -> int:
        """Columns of the pair encoding, of which the first :attr:`own_columns` of a self-loop are
        the encoding of its node."""

    @property
    def node_columns(self) -> int:
        """Columns of the node encoding with degrees."""
        return self.own_columns + (0 if self.degrees == "none" else 2)

    @property
    def stored_columns(self) -> dict[str, int]:
        """Number of columns of each stored tensor, all float32; 0 for a vector."""
        return ({} if self.degrees == "none" else {"degree": 2}) | self._own_stored_columns()

    def _own_stored_columns(self) -> dict[str, int]:
        return {}

    def compute(
        self, edge_index: Tensor, num_nodes: int, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Stored tensors that need no eigenvectors, of one graph or of many laid end to end.

        Args:
            edge_index: Head and tail of each edge [2, E].
            num_nodes: Number of nodes.
            weight: Weight of each edge [E]; degrees are then sums of weights.
        """
        degrees = self.compute_degrees(edge_index, num_nodes, weight)
        return degrees | self._compute(edge_index, num_nodes, weight)

    def compute_degrees(
        self, edge_index: Tensor, num_nodes: int, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The stored tensor ``degree`` [n, 2], unless degrees are left out."""
        if self.degrees == "none":
            return {}
        return {"degree": node_degrees(edge_index, num_nodes, weight)}

    def _compute(
        self, edge_index: Tensor, num_nodes: int, weight: Tensor | None
    ) -> dict[str, Tensor]:
        return {}

    def compute_spectrum(
        self,
        edge_index: Tensor,
        num_nodes: int,
        weight: Tensor | None = None,
        keep: Path | None = None,
        progress: Progress = silent,
    ) -> dict[str, Tensor]:
        """Stored tensors made of eigenvectors, of a single graph.

        Args:
            edge_index: Head and tail of each edge [2, E].
            num_nodes: Number of nodes.
            weight: Weight of each edge [E].
            keep: Path without suffix of the files from which an interrupted search of the
                eigenpairs of a large graph is resumed.
            progress: Called with the number of eigenpairs of a large graph found so far.
        """
        return {}

    def compute_batch(
        self, edge_index: Tensor, graph_ptr: Tensor, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """All stored tensors of graphs laid end to end: edges [2, E], first nodes [B + 1]."""
        found = self.compute(edge_index, int(graph_ptr[-1]), weight)
        if not self.spectral:
            return found
        edge_graph = torch.repeat_interleave(graph_ptr.diff())[edge_index[0]]  # [E]
        parts = []
        for number, (first, last) in enumerate(pairwise(graph_ptr.tolist())):
            own = edge_graph == number
            own_weight = None if weight is None else weight[own]
            own_edges = edge_index[:, own] - first
            parts.append(self.compute_spectrum(own_edges, last - first, own_weight))
        return found | {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def problem_with(self, stored: Mapping[str, Tensor]) -> str | None:
        """What is wrong with the values of stored tensors read from an untrusted file, if any.

        They have the expected types and shapes, and are finite.
        """
        return None

    @abstractmethod
    def pairs(self, pairs: Tensor, graphs: Structure) -> Tensor:
        """Encodings of pairs of nodes [2, M] → [M, pair_columns] (equation 2)."""

    def nodes(self, loops: Tensor, degree: Tensor | None) -> Tensor:
        """Encodings of nodes (equations 1 and 3).

        Args:
            loops: Encodings of their self-loops [N, pair_columns].
            degree: Out- and in-degree [N, 2], unless degrees are left out.
        """
        columns = [loops[:, : self.own_columns]]
        if self.degrees != "none":
            assert degree is not None
            columns.append(degree[:, [0, 0]] if self.degrees == "out-out" else degree)
        return torch.cat(columns, dim=1)

    def loops(self, nodes: Tensor) -> Tensor:
        """Encodings of self-loops [N, pair_columns] from those of nodes [N, own_columns].

        Encodings of both directions of a pair, such as P_ij ‖ P_ji, repeat on a self-loop.
        """
        return nodes.repeat(1, self.pair_columns // max(1, self.own_columns))

    def random_signs(
        self, nodes: Tensor, pairs: Tensor, edge_index: Tensor, node_graph: Tensor, num_graphs: int
    ) -> tuple[Tensor, Tensor]:
        """Node and pair encodings as a training step sees them.

        Encodings made of eigenvectors, whose sign is arbitrary, draw signs for each graph.

        Args:
            nodes: Encodings of nodes [N, node_columns].
            pairs: Encodings of edges [E, pair_columns].
            edge_index: Head and tail of each edge [2, E].
            node_graph: Graph of each node [N].
            num_graphs: Number of graphs.
        """
        return nodes, pairs

    # What the PyG transform of an encoding writes. ``name`` is its attr_name.

    @staticmethod
    def write(data: Data, name: str, stored: Mapping[str, Tensor]) -> None:
        """Write what the encoding of edges that are added later needs."""
        for part, tensor in stored.items():
            data[f"{name}_{part}"] = tensor

    @classmethod
    def read(cls, data: Data, name: str) -> dict[str, Tensor] | None:
        """The stored tensors that :meth:`write` left on one graph or a batch, if any."""
        if not cls.stored_rows or any(f"{name}_{part}" not in data for part in cls.stored_rows):
            return None
        return {part: data[f"{name}_{part}"] for part in cls.stored_rows}

    @classmethod
    def of_written(cls, data: Data, name: str) -> tuple[Encoding, dict[str, Tensor]] | None:
        """The encoding whose transform wrote ``data[name]``, with its stored tensors."""
        return None


class TwoSidedEncoding(Encoding):
    """An encoding with k columns for nodes and 2k for pairs, such as P_ij ‖ P_ji or v_i ‖ v_j.

    Args:
        k: Number of columns of a node.
        degrees: Degrees appended to the encoding of nodes.
    """

    def __init__(self, k: int, degrees: Degrees = "none") -> None:
        super().__init__(degrees)
        self.k = k

    @classmethod
    def from_config(cls, config: EncodingConfig) -> Self:
        """The encoding with the settings of a configuration."""
        return cls(config.steps, config.degrees)

    @property
    def own_columns(self) -> int:
        """k for each node."""
        return self.k

    @property
    def pair_columns(self) -> int:
        """2k: the second half of (i, j) is the first half of (j, i)."""
        return 2 * self.k


class NoEncoding(Encoding):
    """No encoding other than degrees."""

    @classmethod
    def from_config(cls, config: EncodingConfig) -> Self:
        """The encoding with the settings of a configuration."""
        return cls(config.degrees)

    @property
    def own_columns(self) -> int:
        """None."""
        return 0

    @property
    def pair_columns(self) -> int:
        """None."""
        return 0

    def pairs(self, pairs: Tensor, graphs: Structure) -> Tensor:
        """No columns [M, 0]."""
        return torch.empty(pairs.size(1), 0, dtype=torch.float32, device=pairs.device)


def check_not_stale(data: Data, name: str, edge_index: Tensor, graph_ptr: Tensor) -> None:
    """Raise if a graph was changed after a transform wrote ``data[name]``.

    Args:
        data: One graph, or a batch.
        name: The ``attr_name`` of the transform.
        edge_index: Head and tail of the edges, without those that rewiring added [2, E].
        graph_ptr: First node of each graph, and the number of nodes [B + 1].
    """
    checksums, edge_rows = data.get(f"{name}_checksum"), data.get(f"edge_{name}")
    fits = data[name].size(0) == int(graph_ptr[-1])
    if edge_rows is not None:
        fits &= edge_rows.size(0) == data.edge_index.size(1)
    if fits and checksums is not None:
        fits = torch.equal(checksums, graph_checksums(edge_index, graph_ptr))
    if not fits:
        raise GrassError(
            f"The graph was changed after {name!r} was computed: put transforms that change nodes "
            "or edges (ToUndirected, subgraph, AddSelfLoops, …) first, then encodings such as "
            "AddDegree and AddRRWP, and AddRandomRegularEdges last."
        )

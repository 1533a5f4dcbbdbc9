"""The encodings as PyG transforms.

They are in a separate file because PyG takes seconds to import, and ``predict`` does not need it.
"""

from __future__ import annotations

from typing import Any, get_args

import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from grass_gnn.encoding.base import Encoding, Structure, node_degrees
from grass_gnn.encoding.drrwp import DecomposedRRWP, Directed
from grass_gnn.encoding.graph import WEIGHT_KEY, graph_checksums, read_graph
from grass_gnn.encoding.laplacian import LaplacianPE
from grass_gnn.encoding.rrwp import RRWP
from grass_gnn.validation import check_attr_name, check_choice, check_positive_int


class AddEncoding(BaseTransform):
    """Base class of the transforms that write an encoding to a graph.

    Written are ``data[attr_name]`` (nodes), ``data[f"edge_{attr_name}"]`` (edges), the tensors from
    which edges that are added later are encoded, and ``data[f"{attr_name}_checksum"]``, by which
    later changes of the graph are noticed.
    """

    def __init__(self, encoding: Encoding, weight_key: str | None, attr_name: str) -> None:
        check_attr_name(attr_name)
        self.encoding, self.weight_key, self.attr_name = encoding, weight_key, attr_name

    def forward(self, data: Data) -> Data:
        """Write the encoding of nodes and edges."""
        edge_index, num_nodes, weight = read_graph(data, self.weight_key)
        graph_ptr = torch.tensor([0, num_nodes], device=edge_index.device)
        stored = self.encoding.compute_batch(edge_index, graph_ptr, weight)
        loops = torch.arange(num_nodes, device=edge_index.device, dtype=edge_index.dtype)
        pairs = self.encoding.pairs(
            torch.cat([edge_index, loops.expand(2, -1)], dim=1),
            Structure(edge_index, graph_ptr, stored),
        )  # [E + n, columns]
        edges, loops = pairs.tensor_split([edge_index.size(1)])
        name = self.attr_name
        data[name] = self.encoding.nodes(loops, None)
        data[f"edge_{name}"] = edges.contiguous()
        self.encoding.write(data, name, stored)
        data[f"{name}_checksum"] = graph_checksums(edge_index, graph_ptr)
        return data

    def _repr(self, **settings: Any) -> str:
        settings["attr_name"] = self.attr_name
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in settings.items())})"


class AddRRWP(AddEncoding):
    """Write random walk probabilities of nodes and edges to a graph.

    They are ``data.rrwp`` [n, k] (P_ii) and ``data.edge_rrwp`` [E, 2k] (P_ij ‖ P_ji).
    ``data.rrwp_transition`` [E], the transition probabilities of the edges, is kept for encoding
    edges that are added later; ``data.rrwp_checksum`` tells whether the graph was changed since.

    Args:
        k: Number of random walk steps.
        weight_key: Name of the edge weights that walks follow. ``"edge_weight"`` is used where the
            graph has it; ``None`` ignores edge weights.
        attr_name: Name of the written attributes, instead of ``"rrwp"``. The model looks for the
            default name only.
    """

    def __init__(
        self, k: int, weight_key: str | None = WEIGHT_KEY, attr_name: str = RRWP.attr_name
    ) -> None:
        check_positive_int("k", k)
        super().__init__(RRWP(k), weight_key, attr_name)
        self.k = k

    def __repr__(self) -> str:
        return self._repr(k=self.k, weight_key=self.weight_key)


class AddDecomposedRRWP(AddEncoding):
    """Write D-RRWP encodings of nodes and edges to a graph.

    They are ``data.rrwp`` [n, k] and ``data.edge_rrwp`` [E, k]. The eigenpairs are kept for
    encoding edges that are added later: ``data.rrwp_vectors`` [n, m + 1] and ``data.rrwp_values``
    [1, m + 1]. In the alternating form both encodings have 2k columns (walks that begin along the
    edges ‖ against them), and there is ``data.rrwp_right_vectors`` [n, m + 1] too.
    ``data.rrwp_checksum`` tells whether the graph was changed since.

    Args:
        k: Number of random walk steps.
        m: Number of eigenpairs, by default k.
        weight_key: Name of the edge weights that walks follow. ``"edge_weight"`` is used where the
            graph has it; ``None`` ignores edge weights.
        directed: How to treat directed graphs, as in :func:`decompose`.
        attr_name: Name of the written attributes, instead of ``"rrwp"``. The model looks for the
            default name only.
    """

    def __init__(
        self,
        k: int,
        m: int | None = None,
        weight_key: str | None = WEIGHT_KEY,
        directed: Directed = "error",
        attr_name: str = DecomposedRRWP.attr_name,
    ) -> None:
        check_positive_int("k", k)
        check_choice("directed", directed, get_args(Directed))
        m = k if m is None else m
        check_positive_int("m", m)
        super().__init__(DecomposedRRWP(k, m, directed), weight_key, attr_name)
        self.k, self.m, self.directed = k, m, directed

    def __repr__(self) -> str:
        return self._repr(k=self.k, m=self.m, weight_key=self.weight_key, directed=self.directed)


class AddLaplacianPE(AddEncoding):
    """Write Laplacian eigenvectors of nodes and edges to a graph.

    They are ``data.laplacian_pe`` [n, k] (v_i) and ``data.edge_laplacian_pe`` [E, 2k] (v_i ‖ v_j).
    ``data.laplacian_pe_checksum`` tells whether the graph was changed since.

    Args:
        k: Number of eigenvectors.
        weight_key: Name of the edge weights. ``"edge_weight"`` is used where the graph has it;
            ``None`` ignores edge weights.
        attr_name: Name of the written attributes, instead of ``"laplacian_pe"``. The model looks
            for the default name only.
    """

    def __init__(
        self, k: int, weight_key: str | None = WEIGHT_KEY, attr_name: str = LaplacianPE.attr_name
    ) -> None:
        check_positive_int("k", k)
        super().__init__(LaplacianPE(k), weight_key, attr_name)
        self.k = k

    def __repr__(self) -> str:
        return self._repr(k=self.k, weight_key=self.weight_key)


class AddDegree(BaseTransform):
    """Write the out- and in-degree of each node to ``data.degree`` [n, 2].

    Degrees are sums of weights where the graph has edge weights, as in the model's own encoding.
    ``data.degree_checksum`` tells whether the graph was changed since.

    Args:
        weight_key: Name of the edge weights. ``"edge_weight"`` is used where the graph has it;
            ``None`` counts edges.
        attr_name: Name of the written attribute. The model looks for the default name only.
    """

    def __init__(self, weight_key: str | None = WEIGHT_KEY, attr_name: str = "degree") -> None:
        check_attr_name(attr_name)
        self.weight_key, self.attr_name = weight_key, attr_name

    def forward(self, data: Data) -> Data:
        """Write ``degree``."""
        edge_index, num_nodes, weight = read_graph(data, self.weight_key)
        graph_ptr = torch.tensor([0, num_nodes], device=edge_index.device)
        data[self.attr_name] = node_degrees(edge_index, num_nodes, weight)
        data[f"{self.attr_name}_checksum"] = graph_checksums(edge_index, graph_ptr)
        return data

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(weight_key={self.weight_key!r}, attr_name={self.attr_name!r})"
        )

"""Out- and in-degrees of the nodes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from grass_gnn.encoding.graph import WEIGHT_KEY, graph_checksums, read_graph
from grass_gnn.validation import check_attr_name, check_graph


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

"""Out- and in-degrees of the nodes."""

from __future__ import annotations

import torch
from torch import Tensor

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

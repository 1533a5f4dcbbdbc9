"""Pooling and task heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grass_gnn.data.batch import ADDED_EDGE, GraphBatch
from grass_gnn.nn.init import init_linear


class GraphPooling(nn.Module):
    """Separate sums over nodes, existing edges (with self-loops) and added edges: equation (15).

    The sums are divided by constants, the average numbers of rows in the training set, so that the
    head sees values near one. Mean pooling divides by each graph's own counts instead.
    """

    scales: Tensor

    def __init__(self, mode: str = "sum") -> None:
        super().__init__()
        if mode not in ("sum", "mean"):
            raise ValueError(f"pooling must be sum or mean, not {mode!r}")
        self.mode = mode
        self.register_buffer("scales", torch.ones(3))

    def reset_parameters(self) -> None:
        """Reset the constants to one; :meth:`set_scales` sets them."""
        self.scales.fill_(1.0)

    def set_scales(self, mean_nodes: float, mean_input_edges: float, mean_added: float) -> None:
        """Set the constants from averages over the graphs of a training set."""
        scales = torch.tensor([mean_nodes, mean_input_edges + mean_nodes, mean_added])
        self.scales.copy_(torch.where(scales > 0, scales, 1.0))  # an empty block stays zero

    def forward(self, x: Tensor, e: Tensor, batch: GraphBatch) -> Tensor:
        """Pool nodes [N, d] and edges [E, d] → [B, 3d]."""
        num_graphs = batch.num_graphs
        edge_graph = batch.node_graph[batch.edge_index[1]]  # [E]
        block = edge_graph + num_graphs * (batch.edge_kind == ADDED_EDGE)  # [E] in 0 … 2B − 1
        nodes = x.new_zeros(num_graphs, x.size(1)).index_add(0, batch.node_graph, x)
        edges = e.new_zeros(2 * num_graphs, e.size(1)).index_add(0, block, e)
        pooled = torch.stack([nodes, *edges.view(2, num_graphs, -1)], dim=1)  # [B, 3, d]
        if self.mode == "mean":
            # Not bincount: torch.export does not know the size of its result.
            rows = torch.cat([batch.node_graph, block + num_graphs])  # [N + E] in 0 … 3B − 1
            counts = rows.new_zeros(3 * num_graphs).index_add(0, rows, torch.ones_like(rows))
            return (pooled / counts.view(3, -1).clamp(min=1).t().unsqueeze(2)).flatten(1)
        return (pooled / self.scales.view(1, 3, 1)).flatten(1)


class TaskHead(nn.Module):
    """A linear map, or a gated hidden layer with a skip connection.

    W_o [y ‖ (W_v y + b_v) ⊙ mish(W_g y + b_g)] + b_o
    """

    def __init__(self, width: int, outputs: int, hidden: int = 0) -> None:
        super().__init__()
        self.value = init_linear(nn.Linear(width, hidden)) if hidden else None
        self.gate = init_linear(nn.Linear(width, hidden)) if hidden else None
        self.out = init_linear(nn.Linear(width + hidden, outputs))

    def reset_parameters(self) -> None:
        """Reinitialise all weights."""
        for linear in (self.value, self.gate, self.out):
            if linear is not None:
                init_linear(linear)

    def forward(self, y: Tensor) -> Tensor:
        """Map representations [M, width] → [M, outputs]."""
        if self.value is not None and self.gate is not None:
            y = torch.cat([y, self.value(y) * F.mish(self.gate(y))], dim=1)
        return self.out(y)

"""GCN, GIN, GAT, GatedGCN and GPS made of PyG layers, with the same inputs and heads as GRASS.

They use only the input edges, not the self-loops and added edges of GRASS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINEConv, GPSConv, ResGatedGraphConv

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import GraphBatch
from grass_gnn.encoding import make_encoding
from grass_gnn.nn.model import EncodingEmbedding, FeatureEmbedding, TaskHead, prepare_batch
from grass_gnn.nn.norm import limit_inputs

HEADS = 4  # attention heads of GAT and GPS, if the width is divisible by it


class GCNLayer(nn.Module):
    """GCN, which ignores edge features."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv = GCNConv(dim, dim)

    def forward(self, x: Tensor, edge_index: Tensor, e: Tensor, batch: Tensor) -> Tensor:
        """Aggregate nodes [N, d]."""
        return self.conv(x, edge_index)


class EdgeLayer(nn.Module):
    """A PyG layer that uses edge features."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor, e: Tensor, batch: Tensor) -> Tensor:
        """Aggregate nodes [N, d] along edges with features [E, d]."""
        return self.conv(x, edge_index, e)


class GPSLayer(nn.Module):
    """GPS: GINE and full attention in parallel, with norms and residuals of its own."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv = GPSConv(dim, GINEConv(_mlp(dim)), heads=_heads(dim))

    def forward(self, x: Tensor, edge_index: Tensor, e: Tensor, batch: Tensor) -> Tensor:
        """Aggregate nodes [N, d] along edges with features [E, d] and over whole graphs."""
        return self.conv(x, edge_index, batch, edge_attr=e)


def _mlp(dim: int) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))


def _heads(dim: int) -> int:
    return HEADS if dim % HEADS == 0 else 1


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "gcn": GCNLayer,
    "gin": lambda dim: EdgeLayer(GINEConv(_mlp(dim))),
    "gat": lambda dim: EdgeLayer(GATConv(dim, dim // _heads(dim), heads=_heads(dim), edge_dim=dim)),
    "gatedgcn": lambda dim: EdgeLayer(ResGatedGraphConv(dim, dim, edge_dim=dim)),
    "gps": GPSLayer,
}


class Baseline(nn.Module):
    """A message-passing network with the inputs, encodings and heads of GRASS.

    Each layer is followed by batch norm, ReLU and a residual connection, as in *Benchmarking Graph
    Neural Networks* (Dwivedi et al.); GPS has its own.

    Args:
        config: A configuration whose ``model.architecture`` names the baseline.
    """

    target_scale: Tensor
    target_shift: Tensor
    mean_nodes: Tensor

    def __init__(self, config: GRASSConfig) -> None:
        super().__init__()
        self.config = config
        name, dim = config.model.architecture, config.model.dim
        self.encoding = make_encoding(config.encoding)
        if name not in LAYERS:
            raise ValueError(f"baseline must be one of {', '.join(LAYERS)}, not {name!r}")
        self.node_features = FeatureEmbedding(config.input.nodes, dim, edges=False)
        self.edge_features = FeatureEmbedding(config.input.edges, dim, edges=True)
        self.node_encoding, self.edge_encoding = (
            EncodingEmbedding(columns, dim) if columns else None
            for columns in (self.encoding.node_columns, self.encoding.pair_columns)
        )
        depth = config.model.layers
        self.layers = nn.ModuleList(LAYERS[name](dim) for _ in range(depth))
        own_norms = name == "gps"
        self.norms = nn.ModuleList(() if own_norms else (nn.BatchNorm1d(dim) for _ in range(depth)))
        width = 3 * dim if config.task.level == "edge" else dim
        self.head = TaskHead(width, config.task.outputs, config.model.head_hidden)
        self.register_buffer("mean_nodes", torch.ones(()))  # sums of nodes are divided by it
        self.register_buffer("target_scale", torch.tensor(config.task.target_scale))
        self.register_buffer("target_shift", torch.tensor(config.task.target_shift))
        limit_inputs(self, config.model.input_limit)

    def reset_parameters(self) -> None:
        """Reinitialise all weights, and reset statistics and constants to those of a new model."""
        parts = (self.node_features, self.edge_features, self.node_encoding, self.edge_encoding)
        layers = (layer.conv for layer in self.layers)
        for part in (*parts, *layers, *self.norms, self.head):
            if part is not None:
                part.reset_parameters()
        self.mean_nodes.fill_(1.0)
        self.target_scale.copy_(torch.tensor(self.config.task.target_scale))
        self.target_shift.copy_(torch.tensor(self.config.task.target_shift))

    def forward(self, graphs: GraphBatch | Data | Sequence[Data]) -> Tensor:
        """Predictions [G, T] from the input edges alone; otherwise as :class:`~grass_gnn.GRASS`."""
        batch = prepare_batch(graphs, self.config, self.target_scale.device)
        rows = batch.input_edges
        edge_index = batch.edge_index[:, rows]  # [2, E_in]
        x = self.node_features(batch.x, batch.node_graph.size(0))
        attributes = None if batch.edge_attr is None else batch.edge_attr[rows]
        e = self.edge_features(attributes, len(rows), batch.edge_kind[rows])
        nodes, pairs = batch.node_encoding, batch.edge_encoding[rows]
        if self.training:
            nodes, pairs = self.encoding.random_signs(
                nodes, pairs, edge_index, batch.node_graph, batch.num_graphs
            )
        if self.node_encoding is not None:
            x = x + self.node_encoding(nodes)
        if self.edge_encoding is not None:
            e = e + self.edge_encoding(pairs)
        for number, layer in enumerate(self.layers):
            update = layer(x, edge_index, e, batch.node_graph)
            x = x + F.relu(self.norms[number](update)) if len(self.norms) else update
        y = self._readout(x, e, edge_index, batch)
        return self.head(y) * self.target_scale + self.target_shift

    def _readout(self, x: Tensor, e: Tensor, edge_index: Tensor, batch: GraphBatch) -> Tensor:
        if self.config.task.level == "node":
            return x
        if self.config.task.level == "edge":
            return torch.cat([x[edge_index[0]], x[edge_index[1]], e], dim=1)
        total = x.new_zeros(batch.num_graphs, x.size(1)).index_add(0, batch.node_graph, x)
        return total / self.mean_nodes

"""GRASS: head(pool(layers(embed(graph)))).

With the paper in hand: :class:`GRASS` is its Figure 1, ``attention.py`` equations (7) to (14).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import GraphBatch, as_data, batch_from_data
from grass_gnn.encoding import make_encoding
from grass_gnn.nn.embedding import EncodingEmbedding, FeatureEmbedding
from grass_gnn.nn.heads import GraphPooling, TaskHead
from grass_gnn.nn.norm import AveragingNorm, InputNorm
from grass_gnn.nn.stack import LayerStack


class GRASS(nn.Module):
    """Graph Attention with Stochastic Structures.

    Args:
        config: The configuration, such as ``GRASSConfig.preset("zinc")``.

    Example:
        >>> model = GRASS(GRASSConfig.preset("zinc"))
        >>> sum(p.numel() for p in model.parameters())
        496545
    """

    target_scale: Tensor
    target_shift: Tensor

    def __init__(self, config: GRASSConfig) -> None:
        super().__init__()
        self.config = config
        dim, level = config.model.dim, config.task.level
        self.encoding = make_encoding(config.encoding)
        self.node_features = FeatureEmbedding(config.input.nodes, dim, edges=False)
        self.edge_features = FeatureEmbedding(config.input.edges, dim, edges=True)
        self.node_encoding, self.edge_encoding = (
            EncodingEmbedding(columns, dim) if columns else None
            for columns in (self.encoding.node_columns, self.encoding.pair_columns)
        )
        self.layers = LayerStack(config.model)
        self.pooling = GraphPooling(config.model.pooling) if level == "graph" else None
        self.descriptors = InputNorm(config.input.descriptors) if config.input.descriptors else None
        width = (dim if level == "node" else 3 * dim) + config.input.descriptors
        self.head = TaskHead(width, config.task.outputs, config.model.head_hidden)
        self.register_buffer("target_scale", torch.tensor(config.task.target_scale))
        self.register_buffer("target_shift", torch.tensor(config.task.target_shift))

    def forward(self, graphs: GraphBatch | Data | Sequence[Data]) -> Tensor:
        """Predict from a batch: [B, outputs] for graphs, [N, …] for nodes, [E, …] for input edges.

        Regressions are in the units of the targets, classifications are logits. PyG graphs are
        encoded and rewired on the way where that was not done before.
        """
        batch = self.prepare(graphs)
        x, e = self.represent(batch)
        return self.head(self.readout(x, e, batch)) * self.target_scale + self.target_shift

    def prepare(
        self, graphs: GraphBatch | Data | Sequence[Data], seeds: Tensor | None = None
    ) -> GraphBatch:
        """Encode and rewire PyG graphs, with one seed per graph [B]; a GraphBatch is returned."""
        if isinstance(graphs, GraphBatch):
            return graphs
        device = self.target_scale.device  # walks and rewiring are the CPU's work
        return batch_from_data(copy(as_data(graphs)).cpu(), self.config, seeds).to(device)

    def represent(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Representations x^L [N, d] and e^L [E, d] after the last layer."""
        return self.layers(*self.embed(batch), batch)

    def embed(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """The first representations x⁰ [N, d] and e⁰ [E, d], equations (3) and (4)."""
        nodes, edges = batch.node_encoding, batch.edge_encoding
        if self.training:
            nodes, edges = self.encoding.random_signs(
                nodes, edges, batch.edge_index, batch.node_graph, batch.num_graphs
            )
        return (
            self.embed_nodes(batch.x, nodes),
            self.embed_edges(batch.edge_attr, edges, batch.edge_kind),
        )

    def embed_nodes(self, features: Tensor | None, encoding: Tensor) -> Tensor:
        """x⁰ [N, d] from features and encodings [N, …]."""
        x = self.node_features(features, encoding.size(0))
        return x if self.node_encoding is None else x + self.node_encoding(encoding)

    def embed_edges(self, features: Tensor | None, encoding: Tensor, kind: Tensor) -> Tensor:
        """e⁰ [E, d] from features, encodings [E, …] and kinds [E] of edges."""
        e = self.edge_features(features, encoding.size(0), kind)
        return e if self.edge_encoding is None else e + self.edge_encoding(encoding)

    def readout(self, x: Tensor, e: Tensor, batch: GraphBatch) -> Tensor:
        """What the head sees of nodes [N, d] and edges [E, d].

        Pooled graphs [B, 3d] (more with descriptors), nodes [N, d], or input edges with both of
        their ends [E_in, 3d].
        """
        level = self.config.task.level
        if self.pooling is not None:
            pooled = self.pooling(x, e, batch)  # [B, 3d]
            if self.descriptors is not None:
                assert batch.descriptors is not None
                return torch.cat([pooled, self.descriptors(batch.descriptors)], dim=1)
            return pooled
        if level == "node":
            return x  # [N, d]
        head, tail = batch.edge_index[:, batch.input_edges]
        return torch.cat([x[head], x[tail], e[batch.input_edges]], dim=1)  # [E_in, 3d]

    @torch.no_grad()
    def attention(self, graphs: GraphBatch | Data | Sequence[Data]) -> tuple[GraphBatch, Tensor]:
        """The batch and the attention weights of its edges in every layer [L, E, d]."""
        batch = self.prepare(graphs)
        return batch, self.layers.attention(*self.embed(batch), batch)


# What turns a graph into the representations of its nodes and edges; the rest serves the head.
BODY = ("node_features", "edge_features", "node_encoding", "edge_encoding", "layers")


class FrozenGRASS(GRASS):
    """A GRASS of which only the head is trained.

    Its layers stay as they predict, in training too: no edge removal, and norms that use, and never
    change, the statistics they came with. So a graph is represented just as it was before.
    """

    def __init__(self, config: GRASSConfig) -> None:
        super().__init__(config)
        for part in self.body:
            part.requires_grad_(False)
            for module in part.modules():
                if isinstance(module, AveragingNorm):
                    module.freeze()
        self.train()

    @property
    def body(self) -> list[nn.Module]:
        """The parts that are frozen."""
        return [part for name in BODY if (part := getattr(self, name)) is not None]

    def train(self, mode: bool = True) -> FrozenGRASS:
        """Switch the head alone between training and evaluation."""
        super().train(mode)
        for part in self.body:
            part.train(False)
        return self

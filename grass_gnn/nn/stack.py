"""The layers of GRASS one after the other, fused where possible."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from grass_gnn.config import ModelConfig
from grass_gnn.data.batch import GraphBatch
from grass_gnn.nn.alternatives import ReplacementConv
from grass_gnn.nn.attention import GRASSConv, fused_layers, keep_precision
from grass_gnn.ops import use_native


class LayerStack(nn.Module):
    """L layers; every second one sees the edges with head and tail swapped."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.flip = config.flip
        self.checkpoint = config.checkpoint
        self.layers = nn.ModuleList(make_layer(config) for _ in range(config.layers))

    def reset_parameters(self) -> None:
        """Reinitialise all layers."""
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]

    def forward(self, x: Tensor, e: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Update nodes [N, d] and edges [E, d] through all layers."""
        x, e = keep_precision(self, x, e)
        step = self.checkpoint or len(self.layers)
        for first in range(0, len(self.layers), step):
            last = min(first + step, len(self.layers))
            if self.checkpoint and torch.is_grad_enabled():
                # Only the inputs of a segment are kept; the backward pass recomputes the rest.
                x, e = checkpoint(self.segment, x, e, batch, first, last, use_reentrant=False)
            else:
                x, e = self.segment(x, e, batch, first, last)
        return x, e

    def segment(
        self, x: Tensor, e: Tensor, batch: GraphBatch, first: int, last: int
    ) -> tuple[Tensor, Tensor]:
        """Run layers ``first`` to ``last − 1`` on nodes [N, d] and edges [E, d]."""
        layers = [self.layers[number] for number in range(first, last)]
        ours = [layer for layer in layers if isinstance(layer, GRASSConv)]
        if ours and use_native(x, ours[0].node_norm.fused_name, e):
            return fused_layers(ours, x, e, batch.edge_index, batch.order, self.flip, first)
        for number, layer in enumerate(layers, first):
            edges = batch.edge_index.flip(0) if self.flip and number % 2 else batch.edge_index
            x, e = layer(x, edges, e, batch.node_graph, batch.num_graphs)
        return x, e

    @torch.no_grad()
    def attention(self, x: Tensor, e: Tensor, batch: GraphBatch) -> Tensor:
        """Attention weights of every layer [L, E, d], in the order of ``batch.edge_index``.

        In flipped layers (those with odd numbers, counting from 0) the softmax is over the
        out-edges of a node instead of its in-edges.
        """
        x, e = keep_precision(self, x, e)
        weights = []
        for number, layer in enumerate(self.layers):
            if not isinstance(layer, GRASSConv):
                raise ValueError("only GRASS attention has attention weights for every channel")
            edges = batch.edge_index.flip(0) if self.flip and number % 2 else batch.edge_index
            x, e, (_, a) = layer(
                x, edges, e, batch.node_graph, batch.num_graphs, return_attention_weights=True
            )
            weights.append(a)
        return torch.stack(weights)


def make_layer(config: ModelConfig) -> GRASSConv | ReplacementConv:
    """A layer of the configured kind."""
    if config.attention == "grass":
        return GRASSConv(
            config.dim, config.residual_scale, config.edge_removal, config.norm, config.output_bias
        )
    return ReplacementConv(
        config.dim,
        config.attention,
        config.attention_dim,
        config.residual_scale,
        config.norm,
        config.output_bias,
    )

"""Other attention mechanisms in place of GRASS attention, for the paper's ablations.

Only the aggregation of nodes (equations 7 to 9) is replaced by a PyG layer, which gets the edge
representations as edge features. Edge updates, feed-forward networks, norms and residuals are kept.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grass_gnn.nn.attention import init_linear, only_shapes
from grass_gnn.nn.norm import make_norm

ATTENTIONS = ("gat", "gatedgcn", "transformer")


def _make_attention(name: str, dim: int, width: int) -> nn.Module:
    """A PyG layer that uses edge representations."""
    from torch_geometric import nn as pyg  # which takes seconds to import

    if name == "gat":  # edges enter the scores only; messages are those of nodes
        return pyg.GATConv(dim, width, edge_dim=dim, add_self_loops=False, bias=False)
    if name == "gatedgcn":
        return pyg.ResGatedGraphConv(dim, width, edge_dim=dim, bias=False)
    return pyg.TransformerConv(dim, width, edge_dim=dim, bias=False)


class ReplacementConv(nn.Module):
    """A GRASS layer that aggregates nodes by GAT, GatedGCN or Transformer attention.

    Args:
        dim: Width d of nodes and edges.
        attention: ``"gat"``, ``"gatedgcn"`` or ``"transformer"``.
        attention_dim: Width h of the aggregated nodes before their output map; by default the
            width with the number of parameters nearest to that of a GRASS layer.
        residual_scale: α.
        norm: As for :class:`~grass_gnn.GRASSConv`.
        output_bias: As for :class:`~grass_gnn.GRASSConv`.
    """

    def __init__(
        self,
        dim: int,
        attention: str,
        attention_dim: int | None = None,
        residual_scale: float = 0.2,
        norm: str = "batch",
        output_bias: bool = False,
    ) -> None:
        super().__init__()
        if attention not in ATTENTIONS:
            raise ValueError(f"attention must be one of {', '.join(ATTENTIONS)}, not {attention!r}")
        width = attention_dim or matching_width(dim, attention)
        self.residual_scale = residual_scale
        self.aggregate = _make_attention(attention, dim, width)
        self.node_in = init_linear(nn.Linear(dim, 2 * dim, bias=False))  # edge←head | edge←tail
        self.edge_in = init_linear(nn.Linear(dim, dim, bias=False))  # edge←edge
        self.node_bias = nn.Parameter(torch.zeros(width))
        self.edge_bias = nn.Parameter(torch.zeros(dim))
        self.node_out = init_linear(nn.Linear(width, dim, bias=output_bias))
        self.edge_out = init_linear(nn.Linear(dim, dim, bias=output_bias))
        self.node_norm = make_norm(norm, dim)
        self.edge_norm = make_norm(norm, dim)

    def reset_parameters(self) -> None:
        """Reinitialise all weights and discard the statistics of the norms."""
        self.aggregate.reset_parameters()  # type: ignore[operator]
        for linear in (self.node_in, self.edge_in, self.node_out, self.edge_out):
            init_linear(linear)
        nn.init.zeros_(self.node_bias)
        nn.init.zeros_(self.edge_bias)
        self.node_norm.reset_parameters()
        self.edge_norm.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor,
        batch: Tensor,
        num_graphs: int,
    ) -> tuple[Tensor, Tensor]:
        """Update nodes [N, d] and edges [E, d], as :class:`~grass_gnn.GRASSConv` does."""
        head, tail = edge_index[0], edge_index[1]
        x_tilde = self.aggregate(x, edge_index, edge_attr)  # [N, h]
        edge_head, edge_tail = self.node_in(x).chunk(2, dim=1)  # [N, d]
        e_tilde = self.edge_in(edge_attr) + edge_head[head] + edge_tail[tail]  # [E, d]
        x_hat = self.node_out(F.mish(x_tilde + self.node_bias))
        e_hat = self.edge_out(F.mish(e_tilde + self.edge_bias))
        x = self.node_norm(x + self.residual_scale * x_hat, batch, num_graphs)
        e = self.edge_norm(edge_attr + self.residual_scale * e_hat, batch[tail], num_graphs)
        return x, e


@cache
def matching_width(dim: int, attention: str) -> int:
    """The width with which a layer has about 9d² + 2d parameters, as many as a GRASS layer."""

    def excess(width: int) -> int:
        with only_shapes():
            layer = ReplacementConv(dim, attention, width, norm="none")
            return sum(p.numel() for p in layer.parameters()) - (9 * dim**2 + 2 * dim)

    width = 1
    while excess(width + 1) <= 0:
        width += 1
    return min((width, width + 1), key=lambda w: abs(excess(w)))

"""One GRASS layer in plain PyTorch, the reference for testing the fused implementation.

Runs on any device and in any floating type, under autograd and under ``torch.compile``.
Equation numbers are those of the paper; ``docs/deviations.md`` says where the authors' experiments
(and so this file) differ from its text.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-7  # in the attention's denominator and in the norm


class LayerWeights(NamedTuple):
    """Parameters of a layer of width d: 9d² + 2d, and output biases where a norm keeps the mean."""

    node_in: Tensor  # [4d, d]: tail←tail | tail←head | edge←head | edge←tail
    edge_in: Tensor  # [3d, d]: edge←edge | tail←edge | attn←edge
    node_bias: Tensor  # [d]: b_node-act
    edge_bias: Tensor  # [d]: b_edge-act
    node_out: Tensor  # [d, d]
    edge_out: Tensor  # [d, d]
    node_out_bias: Tensor | None = None  # [d]
    edge_out_bias: Tensor | None = None  # [d]


class LayerOutput(NamedTuple):
    """Output of a layer before its norm, and its attention weights."""

    x: Tensor  # [N, d]
    e: Tensor  # [E, d]
    attention: Tensor  # [E, d]


def attention_weights(z: Tensor, tail: Tensor, num_nodes: int, keep: Tensor | None) -> Tensor:
    """Softmax of the logits over the in-edges of each node, channel by channel (equations 7 and 8).

    Args:
        z: Logits of the edges [E, d].
        tail: Tail of each edge [E].
        num_nodes: The number of nodes.
        keep: Factors of random edge removal [E, d]: 0 or 1/(1 − p).
    """
    index = tail.unsqueeze(1).expand_as(z)  # [E, d]
    # A softmax does not change if all logits are shifted, so the maximum needs no gradient.
    top = z.new_zeros(num_nodes, z.size(1)).scatter_reduce(
        0, index, z.detach(), "amax", include_self=False
    )  # [N, d]
    score = torch.exp(z - top[tail])  # [E, d]
    if keep is not None:
        score = score * keep
    # √ε keeps the weights of a node defined when all of its edges are removed.
    score = score + EPSILON**0.5
    total = score.new_zeros(num_nodes, z.size(1)).index_add(0, tail, score) + EPSILON  # [N, d]
    return score / total[tail]  # [E, d]


def grass_layer(
    x: Tensor,
    e: Tensor,
    edge_index: Tensor,
    weights: LayerWeights,
    residual_scale: float,
    keep: Tensor | None = None,
) -> LayerOutput:
    """Attention, aggregation, feed-forward networks and residuals of one layer, before its norm.

    Args:
        x: Node representations [N, d].
        e: Edge representations [E, d]; parallel edges have separate rows.
        edge_index: Head and tail of each edge [2, E].
        weights: The layer's parameters.
        residual_scale: α of equations (13) and (14).
        keep: Random edge removal, as in :func:`attention_weights`.
    """
    head, tail = edge_index[0], edge_index[1]
    w = weights
    tail_tail, tail_head, edge_head, edge_tail = F.linear(x, w.node_in).chunk(4, dim=1)  # [N, d]
    edge_edge, tail_edge, z = F.linear(e, w.edge_in).chunk(3, dim=1)  # [E, d]

    a = attention_weights(z, tail, x.size(0), keep)  # [E, d], equations (7), (8)
    message = a * (tail_head[head] + tail_edge)  # [E, d]
    # Under autocast, a product may have lower precision than the softmax.
    x_tilde = tail_tail.to(message.dtype).index_add(0, tail, message)  # [N, d], equation (9)
    e_tilde = edge_edge + edge_head[head] + edge_tail[tail]  # [E, d], equation (10)

    x_hat = F.linear(F.mish(x_tilde + w.node_bias), w.node_out, w.node_out_bias)  # equation (11)
    e_hat = F.linear(F.mish(e_tilde + w.edge_bias), w.edge_out, w.edge_out_bias)  # equation (12)
    # Equations (13), (14) without their norm. Row k of e stays row k: an edge keeps its own
    # residual even though the next layer swaps its head and tail.
    return LayerOutput(x + residual_scale * x_hat, e + residual_scale * e_hat, a)

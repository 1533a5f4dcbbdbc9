"""The layers of GRASS as one fused operation on the CPU, forward and backward.

``reference.py`` says what a layer computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from grass_gnn.ops.operators import NORMS, stack
from grass_gnn.ops.order import EdgeOrder
from grass_gnn.ops.processes import joined
from grass_gnn.ops.reference import LayerWeights

Norm = Literal["batch", "instance", "none"]


class StackOutput(NamedTuple):
    """Normalised output of the last layer, and the statistics of every layer's rows."""

    x: Tensor  # [N, d]
    e: Tensor  # [E, d]
    statistics: Tensor  # [L, 2, 2, d]: nodes, edges × mean, variance; zeros unless norm is "batch"


def pack_weights(layers: Sequence[LayerWeights]) -> Tensor:
    """The parameters of some layers as one tensor [L, P], where P = 9d² + 2d, or 9d² + 4d."""
    return torch.stack(
        [torch.cat([part.flatten() for part in layer if part is not None]) for layer in layers]
    )


def grass_stack(
    x: Tensor,
    e: Tensor,
    edge_index: Tensor,
    order: EdgeOrder,
    weights: Tensor,
    *,
    residual_scale: float,
    flip: bool,
    norm: Norm,
    removal: float = 0.0,
    seed: int | Tensor = 0,
    statistics: Tensor | None = None,
    first_layer: int = 0,
    synchronise: bool = False,
) -> StackOutput:
    """Run a stack of GRASS layers, each followed by its norm.

    Where gradients are recorded, the inputs of the layers are kept and everything else is computed
    again in the backward pass; where not, nothing is kept.

    Args:
        x: Node representations [N, d], float32.
        e: Edge representations [E, d].
        edge_index: Head and tail of each edge [2, E].
        order: The same edges, by tail and by head.
        weights: Parameters of the layers [L, P], from :func:`pack_weights`.
        residual_scale: α of equations (13) and (14).
        flip: Exchange head and tail in the layers of odd number.
        norm: "batch" over all rows, "instance" (root mean square) over the rows of each graph, or
            "none".
        removal: Probability of random edge removal.
        seed: Of random edge removal; see :func:`grass_gnn.ops.removal_mask`.
        statistics: Means and variances [L, 2, 2, d] to normalise by instead of the batch's own.
        first_layer: Number of the first layer, where the stack is a part of a larger one.
        synchronise: Take the moments of a batch norm over all processes of :mod:`processes`, which
            then must all call this; it makes no difference where there is only one.
    """
    if norm not in NORMS:
        raise ValueError(f"norm is {norm!r}, but must be one of {', '.join(NORMS)}")
    if statistics is not None and norm != "batch":
        raise ValueError(f"statistics are for norm='batch', not for norm={norm!r}")
    if not 0 <= removal < 1:
        raise ValueError(f"removal is {removal}, but must be at least 0 and less than 1")
    _check_shapes(x, e, edge_index, order, weights, statistics)
    save = torch.is_grad_enabled() and any(t.requires_grad for t in (x, e, weights))
    seed = int(seed) % 2**64
    outputs = stack(
        x,
        e,
        weights,
        edge_index,
        list(order),
        None if statistics is None else statistics.detach(),
        residual_scale,
        flip,
        norm,
        removal,
        seed - 2**64 if seed >= 2**63 else seed,
        first_layer,
        synchronise and joined() and norm == "batch" and statistics is None,
        save,
    )
    return StackOutput(outputs[0], outputs[1], outputs[2].detach())


def _check_shapes(
    x: Tensor,
    e: Tensor,
    edge_index: Tensor,
    order: EdgeOrder,
    weights: Tensor,
    statistics: Tensor | None,
) -> None:
    """The C++ trusts the shapes, so a wrong one must not reach it."""
    (nodes, d), edges = x.shape, edge_index.size(1)
    expected = {
        "e": (e, (edges, d)),
        "edge_index": (edge_index, (2, edges)),
        "order.tail_ptr": (order.tail_ptr, (nodes + 1,)),
        "order.tail_order": (order.tail_order, (edges,)),
        "order.head_ptr": (order.head_ptr, (nodes + 1,)),
        "order.head_order": (order.head_order, (edges,)),
    }
    if statistics is not None:
        expected["statistics"] = (statistics, (weights.size(0), 2, 2, d))
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} has shape {list(tensor.shape)}, expected {list(shape)}")
    if weights.dim() != 2 or weights.size(1) not in (9 * d * d + 2 * d, 9 * d * d + 4 * d):
        raise ValueError(f"weights have shape {list(weights.shape)}, which does not fit width {d}")
    for name, tensor in (("x", x), ("e", e), ("weights", weights)):
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}, not float32 on the CPU")

"""The layer as one operation: a reference in plain PyTorch and a fused CPU kernel."""

from __future__ import annotations

from grass_gnn.ops.native import (
    StackOutput,
    StackSettings,
    autocasts_to_bfloat16,
    grass_stack,
    pack_weights,
    use_native,
)
from grass_gnn.ops.order import EdgeOrder, edge_order
from grass_gnn.ops.reference import LayerWeights, grass_layer
from grass_gnn.ops.removal import removal_mask

__all__ = [
    "EdgeOrder",
    "LayerWeights",
    "StackOutput",
    "StackSettings",
    "autocasts_to_bfloat16",
    "edge_order",
    "grass_layer",
    "grass_stack",
    "pack_weights",
    "removal_mask",
    "use_native",
]

"""The layer as one operation: a reference in plain PyTorch, and a fused form for the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from grass_gnn.ops import build
from grass_gnn.ops.native import StackOutput, grass_stack, pack_weights
from grass_gnn.ops.order import EdgeOrder, edge_order
from grass_gnn.ops.reference import LayerWeights, grass_layer
from grass_gnn.ops.removal import removal_mask

__all__ = [
    "EdgeOrder",
    "LayerWeights",
    "StackOutput",
    "edge_order",
    "grass_layer",
    "grass_stack",
    "pack_weights",
    "removal_mask",
    "use_native",
]


def use_native(x: Tensor, norm: str) -> bool:
    """Whether :func:`grass_stack` can and should run the layers on ``x``.

    It takes float32 on the CPU with the norms "batch", "instance" and "none", outside
    ``torch.compile``, if the library can be compiled and ``GRASS_OPS`` is not ``reference``.
    """
    return (
        x.device.type == "cpu"
        and x.dtype == torch.float32
        and norm in ("batch", "instance", "none")
        and not torch.compiler.is_compiling()
        and build.available()
    )

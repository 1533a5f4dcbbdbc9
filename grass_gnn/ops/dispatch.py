"""Which implementation runs the layers: the fused one for the CPU, or the reference."""

from __future__ import annotations

import torch
from torch import Tensor

from grass_gnn.ops import build
from grass_gnn.ops.native import NORMS
from grass_gnn.ops.transforms import in_transform


def use_native(x: Tensor, norm: str | None, *others: Tensor) -> bool:
    """Whether :func:`grass_stack` can and should run the layers on ``x`` and ``others``.

    It takes float32 on the CPU with the norms "batch", "instance" and "none", outside
    ``torch.compile``, ``torch.func`` and forward-mode AD, if the library can be compiled and
    ``GRASS_OPS`` is not ``reference``.
    """
    return (
        norm in NORMS
        and all(t.device.type == "cpu" and t.dtype == torch.float32 for t in (x, *others))
        and not torch.compiler.is_compiling()
        and not in_transform()
        and build.available()
    )

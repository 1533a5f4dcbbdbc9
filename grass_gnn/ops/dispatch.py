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
    ``torch.compile`` and ``torch.func``, if the library can be compiled and ``GRASS_OPS`` is not
    ``reference``. Under autocast, inputs of lower precision are converted to float32.
    """
    low = (torch.bfloat16, torch.float16)
    return (
        x.device.type == "cpu"
        and (x.dtype == torch.float32 or (x.dtype in low and torch.is_autocast_enabled("cpu")))
        and norm in NORMS
        and not torch.compiler.is_compiling()
        and not in_transform(x, *others)
        and build.available()
    )

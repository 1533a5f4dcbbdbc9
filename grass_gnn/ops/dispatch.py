"""Which implementation runs the layers: the fused one for the CPU, or the reference."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from grass_gnn.ops import build

NORMS = ("none", "batch", "instance")  # of the fused layers, in the order of the C++ code


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


def autocasts_to_bfloat16() -> bool:
    """Whether the fused layers should take bfloat16 operands, as ``training.precision`` may ask.

    Only where the processor has instructions for them: elsewhere, float32 is faster.
    """
    return (
        torch.is_autocast_enabled("cpu")
        and torch.get_autocast_dtype("cpu") == torch.bfloat16
        and build.has_bfloat16()
    )


def in_transform() -> bool:
    """Whether a transform of ``torch.func`` (grad, jvp, vmap, …) or forward-mode AD is active.

    A custom C++ operation has no rules for them: most would fail, and ``torch.func.jvp`` would
    return tangents of zero.
    """
    return peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def is_differentiated(tensor: Tensor) -> bool:
    """Whether a derivative of any kind may be taken with respect to a tensor."""
    return (torch.is_grad_enabled() and tensor.requires_grad) or in_transform()

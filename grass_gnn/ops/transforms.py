"""Which derivatives are being recorded: what the fused layers cannot record, the reference does."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad


def in_transform(*tensors: Tensor) -> bool:
    """Whether ``torch.func`` (grad, jvp, vmap, …) or forward-mode AD looks at these tensors.

    A custom C++ operation has no rules for them: under ``torch.func`` it would fail, and under
    ``torch.func.jvp`` return tangents of zero.
    """
    return peek_interpreter_stack() is not None or any(
        forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors
    )


def is_differentiated(tensor: Tensor) -> bool:
    """Whether a derivative of any kind may be taken with respect to a tensor."""
    return (torch.is_grad_enabled() and tensor.requires_grad) or in_transform(tensor)

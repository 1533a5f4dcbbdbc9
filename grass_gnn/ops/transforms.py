"""Which derivatives are being recorded: the fused layers know only the usual backward pass."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad


def in_transform() -> bool:
    """Whether a transform of ``torch.func`` (grad, jvp, vmap, …) or forward-mode AD is active.

    A custom C++ operation has no rules for them: most would fail, and ``torch.func.jvp`` would
    return tangents of zero.
    """
    return peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def is_differentiated(tensor: Tensor) -> bool:
    """Whether a derivative of any kind may be taken with respect to a tensor."""
    return (torch.is_grad_enabled() and tensor.requires_grad) or in_transform()

"""Sums over the processes of a distributed run, so that norms see the rows of all of them.

Each process has some rows of a batch. :func:`join_processes` creates a group in which they add up
the sums that a norm needs. It is separate from the default group, which exchanges gradients at the
same time.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# int add_up(double* sums, int64_t count) of stack.h.
Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_double), ctypes.c_int64)

_group: Any = None


def join_processes() -> None:
    """Create the group; all processes must call this at the same point."""
    global _group
    if _group is None and dist.is_initialized() and dist.get_world_size() > 1:
        _group = dist.new_group()


def leave_processes() -> None:
    """Stop adding up with other processes."""
    global _group
    _group = None


def joined() -> bool:
    """Whether this process is part of a group."""
    return _group is not None


def add_up_processes(values: Tensor) -> Tensor:
    """The sum of a tensor over all processes; gradients are summed in the same way."""
    return _AddUp.apply(values) if joined() else values


class _AddUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total, group=_group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return add_up_processes(grad)


class SumsOfProcesses:
    """Callback of the fused layers; errors are stored, because C++ cannot raise them."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.callback = Callback(self._add_up)

    def _add_up(self, sums: Any, count: int) -> int:
        try:
            address = ctypes.addressof(sums.contents)
            buffer = (ctypes.c_double * count).from_address(address)
            dist.all_reduce(torch.frombuffer(buffer, dtype=torch.float64), group=_group)
        except Exception as error:  # such as a lost connection
            self.error = error
            return 1
        return 0

"""Sums over the processes that train a model together, for norms over all rows of their batches.

The rows of a batch are spread over the processes; :func:`join_processes` makes a group in which
they add up what a norm needs. It is one of its own, since gradients travel in the default group
meanwhile.
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
    """Make the group, once in each process, in all of them at the same point."""
    global _group
    if _group is None and dist.is_initialized() and dist.get_world_size() > 1:
        _group = dist.new_group()


def leave_processes() -> None:
    """Go on alone."""
    global _group
    _group = None


def joined() -> bool:
    """Whether there are other processes to add up with."""
    return _group is not None


def add_up_processes(values: Tensor) -> Tensor:
    """The sum of a tensor over all processes; its gradients are added up likewise."""
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
    """What the fused layers call between layers. An error is kept, as C++ cannot raise it."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.callback = Callback(self._add_up)

    def _add_up(self, sums: Any, count: int) -> int:
        try:
            address = ctypes.addressof(sums.contents)
            buffer = (ctypes.c_double * count).from_address(address)
            dist.all_reduce(torch.frombuffer(buffer, dtype=torch.float64), group=_group)
        except Exception as error:  # a process is gone
            self.error = error
            return 1
        return 0

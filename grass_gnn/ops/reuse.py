"""Memory that a training step hands on to the next.

What a step keeps for its backward pass is hundreds of megabytes, given back to the system at its
end and asked for again by the next step; to have it zeroed anew takes about a twentieth of a step.
So the memory of the last large tensor that went stays here, until one of its size needs it.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import weakref

import torch
from torch import Tensor

SMALLEST = 1 << 24  # bytes: below, the allocator of the system does as well

_free: list[mmap.mmap] = []


def empty(*shape: int) -> Tensor:
    """An uninitialised float32 tensor on the CPU, in used memory if there is some."""
    size = 4 * math.prod(shape)
    if size < SMALLEST or not hasattr(mmap, "MAP_ANONYMOUS"):
        return torch.empty(shape)
    block = _take(size)
    view = (ctypes.c_char * size).from_buffer(block)
    weakref.finalize(view, _give, block).atexit = False  # called when the tensor is gone
    return torch.frombuffer(view, dtype=torch.float32).view(shape)


def clear() -> None:
    """Give unused memory back to the system."""
    _free.clear()


def _take(size: int) -> mmap.mmap:
    block = _free.pop() if _free else None
    if block is not None and size <= len(block) <= 2 * size:
        return block
    # A little more than asked for: the next batch may be a little larger, and pages that are never
    # touched cost nothing.
    return mmap.mmap(-1, size + size // 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _give(block: mmap.mmap) -> None:
    _free[:] = [block]

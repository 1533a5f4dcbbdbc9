"""Memory that one training step passes on to the next.

A step keeps hundreds of megabytes for its backward pass. If it returned them to the operating
system, the next step would get zeroed pages, which takes about a twentieth of its time. So the
memory of the last large tensor that was freed is kept for the next one of similar size.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import weakref

import torch
from torch import Tensor

SMALLEST = 1 << 24  # bytes; below this, the system's allocator is as good

_free: list[mmap.mmap] = []


def empty(*shape: int) -> Tensor:
    """An uninitialised float32 tensor on the CPU, in reused memory if there is any."""
    size = 4 * math.prod(shape)
    if size < SMALLEST or not hasattr(mmap, "MAP_ANONYMOUS"):
        return torch.empty(shape)
    block = _take(size)
    view = (ctypes.c_char * size).from_buffer(block)
    weakref.finalize(view, _give, block).atexit = False  # runs when the tensor is freed
    return torch.frombuffer(view, dtype=torch.float32).view(shape)


def clear() -> None:
    """Return unused memory to the system."""
    _free.clear()


def _take(size: int) -> mmap.mmap:
    block = _free.pop() if _free else None
    if block is not None and size <= len(block) <= 2 * size:
        return block
    # A little more than needed: the next batch may be slightly larger, and pages that are never
    # touched cost nothing.
    return mmap.mmap(-1, size + size // 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _give(block: mmap.mmap) -> None:
    _free[:] = [block]

"""Random edge removal as a function of seed, layer, edge and channel: no mask is stored."""

from __future__ import annotations

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_GOLDEN_RATIO = 0x9E3779B9


def removal_mask(
    seed: int,
    layer: int,
    num_edges: int,
    dim: int,
    p: float,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """What random edge removal multiplies the scores of a layer with: 0, or 1/(1 − p)  [E, d].

    The same numbers, bit for bit, as the fused layers compute while they run (``removal.h``).

    Args:
        seed: Any integer; its low 64 bits count.
        layer: Number of the layer, so that each has a mask of its own.
        num_edges: Rows of the mask.
        dim: Columns of the mask.
        p: Probability of removal, for each edge and channel on its own.
        device: Where the mask is made.
        dtype: Its type.
    """
    first, second = _layer_key(seed, layer)
    row = torch.arange(num_edges, device=device).unsqueeze(1)  # [E, 1]
    channel = torch.arange(dim, device=device)  # [d]
    row_key = _mix((row * _GOLDEN_RATIO + first) & _LOW) ^ second  # [E, 1]
    h = _mix((row_key + channel * _GOLDEN_RATIO) & _LOW)  # [E, d]
    return (h >= int(p * 2**32)).to(dtype) / (1 - p)


def _layer_key(seed: int, layer: int) -> tuple[int, int]:
    """SplitMix64 of seed and layer, in two halves."""
    low = 2**64 - 1
    h = (seed + 0x9E3779B97F4A7C15 * (layer + 1)) & low
    h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & low
    h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & low
    h ^= h >> 31
    return h & _LOW, h >> 32


def _mix(h: Tensor) -> Tensor:
    """The finaliser of MurmurHash3, on 32-bit numbers held in int64."""
    h = h ^ (h >> 16)
    h = (h * 0x85EBCA6B) & _LOW
    h = h ^ (h >> 13)
    h = (h * 0xC2B2AE35) & _LOW
    return h ^ (h >> 16)

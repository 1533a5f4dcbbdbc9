"""Random edge removal as a hash of seed, layer, edge and channel, so that no mask is stored."""

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
    """Factors of the attention scores of a layer: 0 with probability p, else 1/(1 − p)  [E, d].

    These are bit for bit the factors that the fused layers compute on the fly (``removal.h``).

    Args:
        seed: Random seed; its low 64 bits are used.
        layer: Number of the layer; every layer has its own mask.
        num_edges: Number of edges E.
        dim: Number of channels d.
        p: Probability of removal, independently for each edge and channel.
        device: Device of the mask.
        dtype: Type of the mask.
    """
    first, second = _layer_key(seed, layer)
    row = torch.arange(num_edges, device=device).unsqueeze(1)  # [E, 1]
    channel = torch.arange(dim, device=device)  # [d]
    row_key = _mix((row * _GOLDEN_RATIO + first) & _LOW) ^ second  # [E, 1]
    h = _mix((row_key + channel * _GOLDEN_RATIO) & _LOW)  # [E, d]
    return (h >= int(p * 2**32)).to(dtype) / (1 - p)


def _layer_key(seed: int, layer: int) -> tuple[int, int]:
    """Both halves of SplitMix64 of seed and layer."""
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

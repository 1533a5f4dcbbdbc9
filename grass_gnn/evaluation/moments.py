"""Norms of rows that come block by block."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from grass_gnn.nn.norm import BatchNorm, GraphLayerNorm, InstanceNorm, layer_statistics
from grass_gnn.ops.reference import EPSILON


class Moments:
    """Number of rows, and the sums of each channel and of its squares, in float64."""

    def __init__(self) -> None:
        self.rows = 0
        self.sum = self.squares = torch.zeros(())

    def add(self, v: Tensor) -> None:
        """Take rows [b, d] into the sums."""
        self.rows += v.size(0)
        self.sum = self.sum + v.sum(dim=0, dtype=torch.float64)  # [d]
        self.squares = self.squares + v.double().square().sum(dim=0)  # [d]

    @property
    def mean(self) -> Tensor:
        """Mean of each channel [d]."""
        return self.sum / self.rows

    @property
    def variance(self) -> Tensor:
        """Bessel-corrected variance of each channel [d]."""
        centred = self.squares - self.rows * self.mean.square()
        return centred.clamp(min=0) / max(self.rows - 1, 1)

    @property
    def mean_square(self) -> Tensor:
        """Mean square of each channel [d]."""
        return self.squares / self.rows


def normaliser(norm: nn.Module, moments: Moments) -> Callable[[Tensor], Tensor]:
    """What a layer norm does to any rows [b, d] of one graph, given the moments of all of them."""
    if isinstance(norm, BatchNorm):
        known = layer_statistics(norm)
        mean, variance = (moments.mean, moments.variance) if known is None else known
        mean, scale = mean.float(), torch.rsqrt(variance + EPSILON).float()
        return lambda v: (v - mean) * scale
    if isinstance(norm, InstanceNorm):
        scale = torch.rsqrt(moments.mean_square + EPSILON).float()
        return lambda v: v * scale
    if isinstance(norm, GraphLayerNorm):
        scale = torch.rsqrt(moments.mean_square.mean() + EPSILON).float()
        return lambda v: v * scale
    return lambda v: norm(v, v.new_zeros(v.size(0), dtype=torch.int64), 1)  # row by row

"""Stateless functions for norms: means, variances and normalisation.

Variances have Bessel's correction, even in the normalisation itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grass_gnn.ops.native import is_differentiated
from grass_gnn.ops.processes import add_up_processes
from grass_gnn.ops.reference import EPSILON

PART = 4096  # rows whose deviations are computed at a time


def moments(v: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and Bessel-corrected variance of each channel over the rows [M, d] → [d], [d]."""
    mean = v.mean(dim=0)
    return mean, squared_deviations(v, mean) / max(v.size(0) - 1, 1)


def common_moments(v: Tensor) -> tuple[Tensor, Tensor]:
    """The same over the rows [M, d] of all processes (:mod:`grass_gnn.ops.processes`)."""
    rows = add_up_processes(torch.full((), float(v.size(0)), device=v.device))
    mean = add_up_processes(v.sum(dim=0)) / rows
    squares = add_up_processes(squared_deviations(v, mean))
    return mean, squares / (rows - 1).clamp(min=1)


def squared_deviations(v: Tensor, mean: Tensor) -> Tensor:
    """Sum of the squared deviations of the rows [M, d] from ``mean`` [d] → [d].

    Without gradients this goes a few thousand rows at a time: encodings are the largest tensor of a
    batch, and allocating another of their size takes longer than the arithmetic.
    """
    if torch.compiler.is_compiling() or is_differentiated(v):
        return (v - mean).square().sum(dim=0)
    total = torch.zeros_like(mean)
    for part in v.split(PART):
        total += (part - mean).square_().sum(dim=0)
    return total


def normalise(v: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """(v − mean) / √(var + ε) for rows [M, d], given mean [d] and variance [d]."""
    return (v - mean) * torch.rsqrt(var + EPSILON)


def normalise_by_graph(v: Tensor, row_graph: Tensor, num_graphs: int) -> Tensor:
    """v / √(mean v² + ε), the mean over the rows of each graph, for rows [M, d]."""
    square = graph_mean(v.square(), row_graph, num_graphs)  # [B, d]
    return v * torch.rsqrt(square + EPSILON)[row_graph]


def graph_mean(v: Tensor, row_graph: Tensor, num_graphs: int) -> Tensor:
    """Mean over the rows of each graph [M, d] → [B, d]."""
    # In bfloat16, 256 + 1 is 256: sums need float32, and counts are integers.
    terms = v.to(torch.promote_types(v.dtype, torch.float32))
    total = terms.new_zeros(num_graphs, v.size(1)).index_add(0, row_graph, terms)
    ones = torch.ones_like(row_graph, dtype=torch.int64)
    count = ones.new_zeros(num_graphs).index_add(0, row_graph, ones)
    return (total / count.clamp(min=1).unsqueeze(1)).to(v.dtype)


class Moments:
    """Moments of rows that arrive block by block, summed in float64."""

    def __init__(self) -> None:
        self.rows = 0
        self.sum = self.squares = torch.zeros(())

    def add(self, v: Tensor) -> None:
        """Include the rows of a block [b, d]."""
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

"""Normalisation of layers, inputs and encodings.

None of them has a scale or a shift. Variances carry Bessel's correction, also for normalising.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from grass_gnn.ops.processes import add_up_processes
from grass_gnn.ops.reference import EPSILON

ZERO_DEVIATION = 1e-6  # a channel that varies less is constant up to rounding
PART = 4096  # rows whose deviations are taken at a time


def moments(v: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and Bessel-corrected variance of each channel over the rows [M, d] → [d], [d]."""
    mean = v.mean(dim=0)
    return mean, squared_deviations(v, mean) / max(v.size(0) - 1, 1)


def common_moments(v: Tensor) -> tuple[Tensor, Tensor]:
    """The same over the rows [M, d] of all processes (:mod:`grass_gnn.ops.processes`)."""
    rows = add_up_processes(torch.tensor(float(v.size(0)), device=v.device))
    mean = add_up_processes(v.sum(dim=0)) / rows
    squares = add_up_processes(squared_deviations(v, mean))
    return mean, squares / (rows - 1).clamp(min=1)


def squared_deviations(v: Tensor, mean: Tensor) -> Tensor:
    """Sum of the squared deviations of the rows [M, d] from ``mean`` [d] → [d].

    Where no gradient is asked for, a few rows at a time: encodings are the largest tensor of a
    batch, and fresh memory of their size costs more time than the arithmetic.
    """
    if torch.compiler.is_compiling() or (torch.is_grad_enabled() and v.requires_grad):
        return (v - mean).square().sum(dim=0)
    total = torch.zeros_like(mean)
    for part in v.split(PART):
        total += (part - mean).square_().sum(dim=0)
    return total


class BatchAverages(nn.Module):
    """The plain average of the means and variances of batches, each batch with equal weight."""

    synchronised = False  # whether training takes the moments over all processes
    frozen = False  # whether the averages stay as they are, whatever goes through
    mean: Tensor
    var: Tensor
    num_batches: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))
        self.register_buffer("num_batches", torch.zeros((), dtype=torch.int64))
        # Whether there is anything to use, as a Python bool so that compiled code can branch on it.
        self.known = False
        self.register_load_state_dict_post_hook(lambda module, _: module.refresh())

    def batch_moments(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [d] and variance [d] of the rows [M, d] of a batch, wherever they are."""
        return common_moments(v) if self.synchronised and self.training else moments(v)

    def refresh(self) -> None:
        """Look again at whether any batch was averaged."""
        self.known = self.num_batches.device.type != "meta" and bool(self.num_batches > 0)

    def reset(self) -> None:
        """Forget all batches."""
        self.mean.zero_()
        self.var.fill_(1.0)
        self.num_batches.zero_()
        self.known = False

    @torch.no_grad()
    def add(self, mean: Tensor, var: Tensor) -> None:
        """Take mean [d] and variance [d] of one more batch into the average."""
        self.num_batches += 1
        self.mean += (mean - self.mean) / self.num_batches
        self.var += (var - self.var) / self.num_batches

    def train(self, mode: bool = True) -> BatchAverages:
        """Switch between training and evaluation."""
        super().train(mode)
        self.refresh()
        return self


class BatchNorm(BatchAverages):
    """Batch norm of a layer, over all rows of the batch: (v − mean) / √(var + ε).

    There are no running statistics: a batch is normalised by its own moments, in training and in
    validation. Before the final evaluation, :func:`collect_statistics` averages the moments of
    batches of the training set; from then on, evaluation uses that average.
    """

    collecting = False

    def forward(self, v: Tensor, row_graph: Tensor, num_graphs: int) -> Tensor:
        """Normalise rows [M, d]; the graph of each row does not matter here."""
        if self.known and not self.training and not self.collecting:
            mean, var = self.mean, self.var
        else:
            mean, var = self.batch_moments(v)
            if self.collecting:
                self.add(mean, var)
        return (v - mean) * torch.rsqrt(var + EPSILON)


class InputNorm(BatchAverages):
    """Batch norm of inputs and encodings, without ε: a constant channel gives exactly zero.

    In training it uses the batch, and averages all batches since the start for evaluation.
    """

    def forward(self, v: Tensor) -> Tensor:
        """Normalise rows [M, d]."""
        if self.training or not self.known:
            mean, var = self.batch_moments(v)
            if self.training:
                self.add(mean, var)
        else:
            mean, var = self.mean, self.var
        deviation = var.sqrt()
        constant = deviation < ZERO_DEVIATION
        scale = torch.where(constant, 0.0, 1.0 / torch.where(constant, 1.0, deviation))
        return (v - mean).mul_(scale)


class InstanceNorm(nn.Module):
    """Each channel over the rows of a graph: v / √(mean v² + ε), with no mean subtracted."""

    def forward(self, v: Tensor, row_graph: Tensor, num_graphs: int) -> Tensor:
        """Normalise rows [M, d], given the graph of each row [M]."""
        square = graph_mean(v.square(), row_graph, num_graphs)  # [B, d]
        return v * torch.rsqrt(square + EPSILON)[row_graph]


class LayerNorm(nn.Module):
    """Each row over its channels, its mean subtracted."""

    def forward(self, v: Tensor, row_graph: Tensor, num_graphs: int) -> Tensor:
        """Normalise rows [M, d]."""
        return nn.functional.layer_norm(v, v.shape[1:], eps=EPSILON)


class GraphLayerNorm(nn.Module):
    """The authors' layer norm: v / √(mean v² + ε) over the rows and channels of a graph."""

    def forward(self, v: Tensor, row_graph: Tensor, num_graphs: int) -> Tensor:
        """Normalise rows [M, d], given the graph of each row [M]."""
        square = graph_mean(v.square().mean(dim=1, keepdim=True), row_graph, num_graphs)  # [B, 1]
        return v * torch.rsqrt(square + EPSILON)[row_graph]


class NoNorm(nn.Module):
    """No normalisation."""

    def forward(self, v: Tensor, row_graph: Tensor, num_graphs: int) -> Tensor:
        """Return the rows [M, d] as they are."""
        return v


def graph_mean(v: Tensor, row_graph: Tensor, num_graphs: int) -> Tensor:
    """Mean over the rows of each graph [M, d] → [B, d]."""
    total = v.new_zeros(num_graphs, v.size(1)).index_add(0, row_graph, v)
    count = v.new_zeros(num_graphs).index_add(0, row_graph, v.new_ones(v.size(0)))
    return total / count.clamp(min=1).unsqueeze(1)


def make_norm(kind: str, dim: int) -> nn.Module:
    """The layer norm of a given name (``config.ModelConfig.norm``)."""
    if kind == "batch":
        return BatchNorm(dim)
    norms = {
        "instance": InstanceNorm,
        "layer": LayerNorm,
        "layer-graph": GraphLayerNorm,
        "none": NoNorm,
    }
    if kind not in norms:
        raise ValueError(f"norm is one of batch, {', '.join(norms)}, not {kind!r}")
    return norms[kind]()


@contextmanager
def collect_statistics(model: nn.Module) -> Iterator[None]:
    """Average the moments of all batches that go through the layer norms meanwhile.

    The model is put in evaluation mode (no edge removal), and earlier statistics are forgotten.
    """
    norms = [norm for norm in model.modules() if isinstance(norm, BatchNorm) and not norm.frozen]
    model.eval()
    for norm in norms:
        norm.reset()
        norm.collecting = True
    try:
        yield
    finally:
        for norm in norms:
            norm.collecting = False
            norm.refresh()


def synchronise_norms(model: nn.Module) -> None:
    """In training, take the moments of batches over all processes that train together."""
    for module in model.modules():
        if isinstance(module, BatchAverages):
            module.synchronised = True


def reset_statistics(model: nn.Module) -> None:
    """Forget collected statistics of the layer norms, so that validation uses its own batches."""
    for module in model.modules():
        if isinstance(module, BatchNorm) and not module.frozen:
            module.reset()


def layer_statistics(norm: Any) -> Tensor | None:
    """Collected mean and variance [2, d] of a batch norm, if evaluation is to use them."""
    if isinstance(norm, BatchNorm) and norm.known and not norm.training and not norm.collecting:
        return torch.stack([norm.mean, norm.var])
    return None


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

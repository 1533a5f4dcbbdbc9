"""Normalisation of layers, inputs and encodings.

No norm here has a learned scale or shift. Every norm is a :class:`Norm`, and :attr:`Norm.mode` says
which statistics it applies to the next batch:

===================  =============================================  ===============================
mode                 normalises by                                  and
===================  =============================================  ===============================
``Mode.BATCH``       the moments of the batch                       keeps nothing
``Mode.COLLECTING``  the moments of the batch                       adds them to its averages
``Mode.STORED``      its averages                                   leaves them as they are
===================  =============================================  ===============================

To add a norm, write a subclass, list it in ``NORMS``, and add its name to ``ModelConfig.norm``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from grass_gnn.errors import GrassError
from grass_gnn.ops.native import in_transform, is_differentiated
from grass_gnn.ops.norms import (
    Moments,
    common_moments,
    graph_mean,
    moments,
    normalise,
    normalise_by_graph,
)
from grass_gnn.ops.reference import EPSILON

ZERO_DEVIATION = 1e-6  # a channel that varies less, relative to a mean above 1, is constant


class Mode(Enum):
    """Which statistics a norm uses, and whether it stores those of the batch."""

    BATCH = "batch"
    COLLECTING = "collecting"
    STORED = "stored"


class Norm(nn.Module):
    """Base class of the norms. Those without stored statistics always use the batch."""

    by_graph: ClassVar[bool] = False
    """Whether each graph is normalised on its own, so that the graphs of the rows matter."""
    fused_name: ClassVar[str | None] = None
    """Name of the same norm in the fused kernel; ``None`` if the kernel does not have it."""

    def __init_subclass__(cls, **options: Any) -> None:
        """A norm with another ``forward`` does not inherit the other forms of the one before."""
        super().__init_subclass__(**options)
        for name in ("fused_name", "for_blocks") if "forward" in vars(cls) else ():
            if name not in vars(cls):
                setattr(cls, name, getattr(Norm, name))

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()

    @property
    def mode(self) -> Mode:
        """Which statistics the next batch is normalised by."""
        return Mode.BATCH

    @property
    def synchronises(self) -> bool:
        """Whether the moments of the next batch are taken over all processes."""
        return False

    def fused_statistics(self) -> Tensor | None:
        """Mean and variance [2, d] for the fused kernel; ``None``: those of the batch."""
        return None

    def observe(self, mean: Tensor, var: Tensor) -> None:
        """Record the moments [d] that the fused kernel computed for a batch."""

    def for_blocks(self, seen: Moments) -> Callable[[Tensor], Tensor]:
        """The norm as a function of some rows [b, d] of one graph, given the moments of all rows.

        Evaluation in blocks of edges uses it. There is no default: applied to a block, a norm over
        all rows would silently use the statistics of the block instead of those of the graph.
        """
        raise GrassError(
            f"{type(self).__name__} cannot be evaluated in blocks of edges: it has no for_blocks."
        )

    def reset_parameters(self) -> None:
        """Discard all statistics."""


class AveragingNorm(Norm):
    """A norm that can keep the average of the means and variances of batches, equally weighted.

    Attributes:
        frozen: The averages are used, even in training, and never change again.
        synchronised: Training takes the moments over the rows of all processes.
    """

    mean: Tensor  # [d]
    var: Tensor  # [d]
    num_batches: Tensor  # []
    _known = False
    _seen: tuple[Tensor, int] | None = None

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))
        self.register_buffer("num_batches", torch.zeros((), dtype=torch.int64))
        self.frozen = False
        self.synchronised = False
        self._set_known(False)

    def reset_parameters(self) -> None:
        """Discard all batches."""
        self.mean.zero_()
        self.var.fill_(1.0)
        self.num_batches.zero_()
        self._set_known(False)

    @property
    def known(self) -> bool:
        """Whether any batch was averaged.

        It mirrors ``num_batches > 0``, so that neither ``.eval()`` nor a forward pass has to wait
        for a GPU: the number is read only after something else has changed it, such as
        :class:`torch.optim.swa_utils.AveragedModel`, which copies buffers. It is not a count,
        because compiled code would then be compiled again for every batch.
        """
        seen, now = self._seen, self._stamp()
        if now is not None and (seen is None or now[0] is not seen[0] or now[1] != seen[1]):
            AveragingNorm.refresh(self)
        return self._known

    def _set_known(self, known: bool) -> None:
        self._known, self._seen = known, self._stamp()

    def _stamp(self) -> tuple[Tensor, int] | None:
        """``num_batches``, and how often it was changed; ``None`` where PyTorch does not tell."""
        number = self.num_batches
        if torch.compiler.is_compiling() or in_transform() or number.is_inference():
            return None
        return number, number._version

    def freeze(self) -> None:
        """Use the averages from now on, and never change them."""
        self.frozen = True

    def refresh(self) -> None:
        """Update ``known`` after ``num_batches`` was set from outside."""
        self._set_known(self.num_batches.device.type != "meta" and bool(self.num_batches > 0))

    @property
    def is_collecting(self) -> bool:
        """Whether batches are being averaged; subclasses say when."""
        raise NotImplementedError

    @property
    def prefers_batch(self) -> bool:
        """Whether a batch is normalised by its own moments although averages are known."""
        return self.training

    @property
    def mode(self) -> Mode:
        """Which statistics the next batch is normalised by."""
        if self.frozen:
            return Mode.STORED if self.known else Mode.BATCH
        if self.is_collecting:
            return Mode.COLLECTING
        return Mode.BATCH if self.prefers_batch or not self.known else Mode.STORED

    @property
    def synchronises(self) -> bool:
        """Whether the moments of the next batch are taken over all processes."""
        return self.synchronised and self.training and not self.frozen

    def statistics(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [d] and variance [d] for normalising the rows of a batch [M, d]."""
        mode = self.mode
        if mode is Mode.STORED:
            return self.mean, self.var
        mean, var = common_moments(v) if self.synchronises else moments(v)
        # No rows have no moments, unless other processes have some.
        if mode is Mode.COLLECTING and (v.size(0) or self.synchronises):
            self._average(mean, var)
        return mean, var

    @torch.no_grad()
    def _average(self, mean: Tensor, var: Tensor) -> None:
        """Include the mean [d] and variance [d] of one more batch in the averages."""
        self.num_batches += 1
        first = self.num_batches == 1
        for average, new in ((self.mean, mean.detach()), (self.var, var.detach())):
            # Assigned for the first batch: 1 + (var − 1) would lose a small variance in float32.
            updated = average + (new - average) / self.num_batches
            average.copy_(torch.where(first, new.to(average.dtype), updated))
        self._set_known(True)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.refresh()


class BatchNorm(AveragingNorm):
    """Batch norm of a layer, over all rows of the batch: (v − mean) / √(var + ε).

    There are no running statistics: batches are normalised by their own moments, in training and in
    validation, until :func:`collect_statistics` has averaged the moments of training batches. From
    then on, evaluation uses these averages.
    """

    fused_name = "batch"

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.collecting = False  # set by collect_statistics

    @property
    def is_collecting(self) -> bool:
        """Only within :func:`collect_statistics`."""
        return self.collecting

    def forward(self, v: Tensor, row_graph: Tensor, num_graphs: int) -> Tensor:
        """Normalise rows [M, d]; the graph of each row does not matter here."""
        return normalise(v, *self.statistics(v))

    def fused_statistics(self) -> Tensor | None:
        """The averages [2, d], if the next batch is normalised with them."""
        return torch.stack([self.mean, self.var]) if self.mode is Mode.STORED else None

    def observe(self, mean: Tensor, var: Tensor) -> None:
        """Average the moments [d] that the fused kernel found, if statistics are collected."""
        if self.mode is Mode.COLLECTING:
            self._average(mean, var)

    def for_blocks(self, seen: Moments) -> Callable[[Tensor], Tensor]:
        """By the averages, or else by the moments of all rows."""
        stored = self.mode is Mode.STORED
        mean, var = (self.mean, self.var) if stored else (seen.mean, seen.variance)
        mean, scale = mean.float(), torch.rsqrt(var + EPSILON).float()
        return lambda v: (v - mean) * scale


class InputNorm(AveragingNorm):
    """Batch norm of inputs and encodings, without ε: a constant channel becomes exactly zero.

    Training uses the moments of the batch and averages those of all batches for evaluation.

    Attributes:
        limit: Normalised values are clipped to this many standard deviations; 0 for no limit. A
            column that is nearly always zero, such as the three-step return probability of
            molecules with few triangles, otherwise reaches dozens of standard deviations.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.limit = 0.0

    @property
    def is_collecting(self) -> bool:
        """Whenever the model is trained."""
        return self.training

    def forward(self, v: Tensor) -> Tensor:
        """Normalise rows [M, d]."""
        mean, var = self.statistics(v)
        # The mean of many equal values is rounded, which must not look like a deviation.
        size = mean.detach().abs().clamp(min=1.0)
        constant = var.detach().sqrt() < ZERO_DEVIATION * size
        # Keep zero out of the square root, where its gradient is infinite.
        scale = torch.where(constant, 0.0, 1.0 / torch.where(constant, 1.0, var).sqrt())
        centred = v - mean
        normalised = centred * scale if is_differentiated(v) else centred.mul_(scale)
        return normalised.clamp(-self.limit, self.limit) if self.limit else normalised


_LINEAR, _LOGARITHM = 1, 2  # how DescriptorNorm treats a column; 0: not fitted
_RANGE = 6.0  # most standard deviations between two training values of a column


class DescriptorNorm(InputNorm):
    """Standardises descriptors by fixed statistics of the training set, in training as well.

    The moments of a batch would change the meaning of a value from batch to batch: a functional
    group that few molecules contain is constant in most batches, and many deviations away from the
    mean in the others. Here, columns with long tails are replaced by sign(v) log(1 + |v|), and the
    standard deviation of a column is at least a sixth of its range, so that no training value is
    more than six deviations away from the mean; :attr:`InputNorm.limit` bounds other values.

    Unless :meth:`fit` was called, batches are averaged as in :class:`InputNorm`, as they were
    in earlier versions.
    """

    scaling: Tensor  # [d] int8

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.register_buffer("scaling", torch.zeros(dim, dtype=torch.int8))

    def reset_parameters(self) -> None:
        """Forget the training set."""
        super().reset_parameters()
        self.scaling.zero_()
        self.frozen = False

    @torch.no_grad()
    def fit(self, values: Tensor) -> None:
        """Take over the statistics of training values [M, d]."""
        plain = values.double()
        logs = _signed_log(plain)
        mean, std, reach = _column_statistics(plain)
        log_mean, log_std, log_reach = _column_statistics(logs)
        long_tails = (reach > _RANGE) & (log_reach < reach)
        self.scaling.copy_(torch.where(long_tails, _LOGARITHM, _LINEAR))
        self.mean.copy_(torch.where(long_tails, log_mean, mean))
        self.var.copy_(torch.where(long_tails, log_std, std).square())
        self.num_batches.fill_(1)
        self.refresh()

    def refresh(self) -> None:
        """Look at the statistics again, after they were set from outside."""
        super().refresh()
        self.frozen = self.scaling.device.type != "meta" and bool((self.scaling > 0).any())

    def forward(self, v: Tensor) -> Tensor:
        """Normalise rows [M, d]."""
        return super().forward(torch.where(self.scaling == _LOGARITHM, _signed_log(v), v))

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        state_dict.setdefault(prefix + "scaling", torch.zeros_like(self.scaling))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _signed_log(v: Tensor) -> Tensor:
    return v.sign() * v.abs().log1p()


def _column_statistics(v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, floored deviation and largest deviation in plain ones, of each column [d] each."""
    mean, low, high = v.mean(dim=0), v.amin(dim=0), v.amax(dim=0)
    std = v.std(dim=0, unbiased=False)
    reach = torch.maximum(high - mean, mean - low) / std.clamp(min=ZERO_DEVIATION)
    return mean, torch.maximum(std, (high - low) / _RANGE), reach


def freeze_norms(model: nn.Module) -> None:
    """Use the statistics that the norms have from now on, also in training."""
    for module in model.modules():
        if isinstance(module, AveragingNorm):
            module.freeze()


def limit_inputs(model: nn.Module, limit: float) -> None:
    """Clip the output of a model's input norms to ``limit`` standard deviations."""
    for module in model.modules():
        if isinstance(module, InputNorm):
            module.limit = limit


class InstanceNorm(Norm):
    """Each channel over the rows of a graph: v / √(mean v² + ε), with no mean subtracted."""

    by_graph = True
    fused_name = "instance"

    def forward(self, v: Tensor, row_graph: Tensor, num_graphs: int) -> Tensor:
        """Normalise rows [M, d], given the graph of each row [M]."""
        return normalise_by_graph(v, row_graph, num_graphs)

    def for_blocks(self, seen: Moments) -> Callable[[Tensor], Tensor]:
        """By the mean square of each channel over all rows."""
        scale = torch.rsqrt(seen.mean_square + EPSILON).float()
        return lambda v: v * scale


class LayerNorm(Norm):
    """Each row over its channels, its mean subtracted."""

    def forward(self, v: Tensor, row_graph: Tensor, num_graphs: int) -> Tensor:
        """Normalise rows [M, d]."""
        return nn.functional.layer_norm(v, v.shape[1:], eps=EPSILON)

    def for_blocks(self, seen: Moments) -> Callable[[Tensor], Tensor]:
        """Row by row, independently of the others."""
        return lambda v: nn.functional.layer_norm(v, v.shape[1:], eps=EPSILON)


class GraphLayerNorm(Norm):
    """The authors' layer norm: v / √(mean v² + ε) over the rows and channels of a graph."""

    by_graph = True

    def forward(self, v: Tensor, row_graph: Tensor, num_graphs: int) -> Tensor:
        """Normalise rows [M, d], given the graph of each row [M]."""
        square = graph_mean(v.square().mean(dim=1, keepdim=True), row_graph, num_graphs)  # [B, 1]
        return v * torch.rsqrt(square + EPSILON)[row_graph]

    def for_blocks(self, seen: Moments) -> Callable[[Tensor], Tensor]:
        """By the mean square over all rows and channels."""
        scale = torch.rsqrt(seen.mean_square.mean() + EPSILON).float()
        return lambda v: v * scale


class NoNorm(Norm):
    """No normalisation."""

    fused_name = "none"

    def forward(self, v: Tensor, row_graph: Tensor, num_graphs: int) -> Tensor:
        """Return the rows [M, d] unchanged."""
        return v

    def for_blocks(self, seen: Moments) -> Callable[[Tensor], Tensor]:
        """Return rows unchanged."""
        return lambda v: v


NORMS: dict[str, type[Norm]] = {
    "batch": BatchNorm,
    "instance": InstanceNorm,
    "layer": LayerNorm,
    "layer-graph": GraphLayerNorm,
    "none": NoNorm,
}


def make_norm(kind: str, dim: int) -> Norm:
    """The layer norm of a given name (``config.ModelConfig.norm``) for d channels."""
    if kind not in NORMS:
        raise ValueError(f"norm must be one of {', '.join(NORMS)}, not {kind!r}")
    return NORMS[kind](dim)


@contextmanager
def collect_statistics(model: nn.Module) -> Iterator[None]:
    """Average the moments of all batches that pass through the layer norms in this context.

    The model is put in evaluation mode (no edge removal), and earlier statistics are discarded.
    Evaluation uses the new ones from then on, and training does not change them: collect again
    after further training.

    Example:
        >>> with torch.no_grad(), collect_statistics(model):  # doctest: +SKIP
        ...     for batch in train_loader:
        ...         model(batch)
    """
    norms = [norm for norm in model.modules() if isinstance(norm, BatchNorm) and not norm.frozen]
    model.eval()
    for norm in norms:
        norm.reset_parameters()
        norm.collecting = True
    try:
        yield
    finally:
        for norm in norms:
            norm.collecting = False


def synchronise_norms(model: nn.Module) -> None:
    """In training, take the moments of batches over all processes that train together."""
    for module in model.modules():
        if isinstance(module, AveragingNorm):
            module.synchronised = True


def reset_statistics(model: nn.Module) -> None:
    """Discard collected statistics of the layer norms, so that validation uses its own batches."""
    for module in model.modules():
        if isinstance(module, BatchNorm) and not module.frozen:
            module.reset_parameters()

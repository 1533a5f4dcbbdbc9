"""The learning-rate schedule, and what becomes of the weights step by step.

Steps that are not finite are skipped. The moving average of the weights and those with the best
validation score are kept.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from grass_gnn.config import TaskConfig, TrainingConfig
from grass_gnn.data.batch import GraphBatch
from grass_gnn.errors import GrassError
from grass_gnn.files import write_whole
from grass_gnn.nn.norm import InputNorm
from grass_gnn.tasks import LOWER_IS_BETTER, AddUp, alone, make_task

BATCH = "nonfinite_batch.safetensors"


# Settings that affect nothing but the learning rate of a step and the number of steps.
SCHEDULE = ("epochs", "warmup", "hold", "initial_learning_rate", "final_learning_rate")


def learning_rate(step: int, total: int, training: TrainingConfig) -> float:
    """Learning rate of a step (from 0) out of ``total``: warm-up, hold, then cosine decay."""
    # The peak is reached after u = warmup × total − 1 steps; at least 1, for very short runs.
    peak_step = max(training.warmup * total - 1, 1.0)
    if step <= peak_step:
        return _half_cosine(
            training.initial_learning_rate, training.learning_rate, step / peak_step
        )
    decay_step = peak_step + training.hold * total
    if step <= decay_step:
        return training.learning_rate
    progress = (step - decay_step) / max(total - 1 - decay_step, 1e-9)
    return _half_cosine(training.learning_rate, training.final_learning_rate, min(progress, 1.0))


def same_schedule(
    steps: int, steps_per_epoch: int, one: TrainingConfig, other: TrainingConfig
) -> bool:
    """Whether the first steps have the same learning rate in two configurations."""
    totals = (one.epochs * steps_per_epoch, other.epochs * steps_per_epoch)
    return all(
        math.isclose(
            learning_rate(step, totals[0], one), learning_rate(step, totals[1], other), rel_tol=1e-9
        )
        for step in range(steps)
    )


def _half_cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


def set_learning_rate(
    optimizer: torch.optim.Optimizer, step: int, total: int, training: TrainingConfig
) -> float:
    """Set the learning rate of a step in all parameter groups, and return it."""
    peak = training.learning_rate
    # A factor of the peak, as LambdaLR computes it: the last bit agrees with runs before this loop.
    rate = peak * (learning_rate(step, total, training) / peak)
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate


class NotFinite(GrassError):
    """Training stopped because loss, gradients or weights are not finite."""


class FiniteSteps:
    """Decides whether an optimiser step is taken, and counts the skipped ones.

    A skipped step leaves weights, optimiser state and the averages of the input norms as they were.

    Args:
        largest: The largest gradient that the optimiser can handle.
    """

    def __init__(self, largest: float) -> None:
        self.largest = largest
        self.skipped = 0  # since the start of the run
        self.in_a_row = 0
        self._before: list[tuple[Tensor, Tensor]] | None = None  # buffers and their copies

    def begin(self, model: nn.Module) -> None:
        """Copy the buffers that a forward pass changes, before the first batch of a step."""
        if self._before is None:
            self._before = [(buffer, buffer.clone()) for buffer in _changing_buffers(model)]

    def accept(self, model: nn.Module, loss: float, gradient: float) -> bool:
        """Whether to take the step, given its loss and its largest gradient.

        Otherwise the gradients are removed (an optimiser ignores weights without a gradient), and
        the buffers are restored.
        """
        before, self._before = self._before, None
        if math.isfinite(loss) and gradient <= self.largest:  # False for NaN
            self.in_a_row = 0
            return True
        for parameter in model.parameters():
            parameter.grad = None
        for buffer, value in before or ():
            buffer.copy_(value)
        for norm in model.modules():
            if isinstance(norm, InputNorm):
                norm.refresh()
        self.skipped += 1
        self.in_a_row += 1
        return False

    def state_dict(self) -> dict[str, int]:
        """The counts, for a checkpoint."""
        return {"skipped": self.skipped, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the counts."""
        self.skipped, self.in_a_row = state["skipped"], state["in_a_row"]


def largest_gradient(model: nn.Module) -> Tensor:
    """The largest absolute value of all gradients, on their device; NaN if any of them is NaN."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    # Five times as fast as norms of hundreds of small tensors.
    low, high = torch.cat([gradient.flatten() for gradient in gradients]).aminmax()
    return torch.maximum(-low, high)


def check_weights(model: nn.Module, folder: Path) -> None:
    """Raise unless all weights and buffers are finite, so that others are never saved."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise NotFinite(
                f"The weights {name} are not finite and were not saved. The last checkpoint in "
                f"{folder} is still valid; try a smaller training.learning_rate."
            )


def save_batch(batch: GraphBatch, path: Path, details: dict[str, Any]) -> None:
    """Write the tensors of a batch, with some details, for inspection."""
    parts = {**batch._asdict(), **{f"order.{k}": v for k, v in batch.order._asdict().items()}}
    tensors = {
        name: value.detach().cpu().contiguous().clone()
        for name, value in parts.items()
        if isinstance(value, Tensor)
    }
    data = save_tensors(tensors, {name: str(value) for name, value in details.items()})
    with write_whole(path) as temporary:
        temporary.write_bytes(data)


def _changing_buffers(model: nn.Module) -> list[Tensor]:
    """Buffers that a forward pass changes in training."""
    norms = [module for module in model.modules() if isinstance(module, (InputNorm, _BatchNorm))]
    return [buffer for norm in norms for buffer in norm.buffers(recurse=False)]


def task_loss(
    task: TaskConfig, prediction: Tensor, target: Tensor, smoothing: float, add_up: AddUp = alone
) -> Tensor:
    """Deprecated: use ``make_task(task).loss`` (see :meth:`grass_gnn.tasks.Task.loss`)."""
    warnings.warn(
        "task_loss is deprecated: use grass_gnn.tasks.make_task(config.task).loss.",
        DeprecationWarning,
        stacklevel=2,
    )
    return make_task(task).loss(prediction, target, smoothing, add_up)


class WeightAverage:
    """Moving average of the trainable weights, in float32.

    The first 1 / (1 − decay) steps are averaged with equal weight, so that the initial weights
    fade; from then on the average is exponential: a ← decay · a + (1 − decay) · w.

    Args:
        model: The model whose weights are averaged.
        decay: Between 0 and 1, such as 0.999.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.weights = {
            name: parameter.detach().float().clone()
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Add the weights after an optimiser step to the average."""
        self.steps += 1
        share = max(1 - self.decay, 1 / self.steps)
        own = dict(model.named_parameters())
        weights = [own[name].detach().float() for name in self.weights]
        torch._foreach_lerp_(list(self.weights.values()), weights, share)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Temporarily load the averaged weights into the model."""
        current = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.copy_to(model)
        try:
            yield
        finally:
            _assign(model, current)

    def copy_to(self, model: nn.Module) -> None:
        """Copy the averaged weights to the model."""
        if self.steps:
            _assign(model, self.weights)

    def to(self, device: torch.device) -> None:
        """Move the average to the device of the model."""
        self.weights = {name: value.to(device) for name, value in self.weights.items()}

    def state_dict(self) -> dict[str, Any]:
        """The average and the number of steps in it, for a checkpoint."""
        return {"steps": self.steps, "weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        self.steps, self.weights = state["steps"], state["weights"]


@torch.no_grad()
def _assign(model: nn.Module, weights: dict[str, Tensor]) -> None:
    own = dict(model.named_parameters())
    for name, value in weights.items():
        own[name].copy_(value)


class BestWeights:
    """Early stopping: the weights of the best validation score so far.

    Args:
        metric: Name of the metric.
        patience: Number of validations without improvement after which training stops.
    """

    def __init__(self, metric: str, patience: int) -> None:
        self.patience = patience
        self.sign = 1.0 if metric in LOWER_IS_BETTER else -1.0
        self.best, self.epoch, self.waited = math.inf, 0, 0
        self.weights: dict[str, Tensor] = {}

    @property
    def exhausted(self) -> bool:
        """Whether training should stop."""
        return self.waited >= self.patience

    def update(self, model: nn.Module, epoch: int, metric: float | None) -> None:
        """Compare the score of an epoch with the best one; None or NaN: there is no score."""
        if metric is None or math.isnan(metric):
            return
        # Among equal scores, keep the later one: a few graphs may be ranked correctly by weights
        # that are hardly trained.
        if self.sign * metric <= self.best:
            self.best, self.epoch, self.waited = self.sign * metric, epoch, 0
            self.weights = {n: v.detach().clone() for n, v in model.state_dict().items()}
        else:
            self.waited += 1

    def copy_to(self, model: nn.Module) -> None:
        """Copy the best weights to the model, if there was a validation score."""
        if self.weights:
            model.load_state_dict(self.weights)

    def state_dict(self) -> dict[str, Any]:
        """The best score, when it was reached, and its weights, for a checkpoint."""
        return {
            "best": self.best,
            "epoch": self.epoch,
            "waited": self.waited,
            "weights": self.weights,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        self.best, self.epoch = state["best"], state["epoch"]
        self.waited, self.weights = state["waited"], state["weights"]

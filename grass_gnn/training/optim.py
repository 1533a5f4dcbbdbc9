"""Optimisers and the schedule of the learning rate.

A new optimiser is one entry of :data:`OPTIMIZERS`, and its name in ``TrainingConfig.optimizer``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import cos, pi
from typing import Any, NamedTuple

import torch
from lion_pytorch import Lion
from torch import Tensor, nn

from grass_gnn.config import TaskConfig, TrainingConfig
from grass_gnn.tasks import AddUp, alone, make_task

Groups = list[dict[str, Any]]


class Kind(NamedTuple):
    """How to build an optimiser, and the largest gradient that it survives."""

    build: Callable[[Groups, TrainingConfig], torch.optim.Optimizer]
    largest_gradient: float


OPTIMIZERS = {
    "lion": Kind(
        lambda groups, training: Lion(groups, lr=training.learning_rate, betas=training.betas),
        largest_gradient=torch.finfo(torch.float32).max,
    ),
    "adamw": Kind(
        lambda groups, training: torch.optim.AdamW(
            groups, lr=training.learning_rate, betas=training.betas, eps=1e-7
        ),
        # AdamW squares gradients: beyond this value its state overflows and weights stop moving.
        largest_gradient=1e19,
    ),
}


def make_optimizer(model: nn.Module, training: TrainingConfig) -> torch.optim.Optimizer:
    """The configured optimiser over the model's trainable parameters.

    Parameters whose name contains "bias" are not decayed.
    """
    decayed: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (undecayed if "bias" in name else decayed).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": training.weight_decay},
        {"params": undecayed, "weight_decay": 0.0},
    ]
    return OPTIMIZERS[training.optimizer].build(groups, training)


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


def _half_cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + cos(pi * progress)) / 2


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

"""Lion or AdamW, with biases left undecayed."""

from __future__ import annotations

from math import cos, pi

import torch
from lion_pytorch import Lion
from torch import nn

from grass_gnn.config import TrainingConfig


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
    if training.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=training.learning_rate, betas=training.betas, eps=1e-7)
    return Lion(groups, lr=training.learning_rate, betas=training.betas)


def learning_rate(step: int, total: int, training: TrainingConfig) -> float:
    """Learning rate of a step (from 0) out of ``total``."""
    # The peak is reached after u = warmup × total − 1 steps; at least 1, for very short runs.
    peak_step = max(training.warmup * total - 1, 1.0)
    if step <= peak_step:
        return _half_cosine(
            training.initial_learning_rate, training.learning_rate, step / peak_step
        )
    progress = (step - peak_step) / max(total - 1 - peak_step, 1e-9)
    return _half_cosine(training.learning_rate, training.final_learning_rate, min(progress, 1.0))


def _half_cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + cos(pi * progress)) / 2

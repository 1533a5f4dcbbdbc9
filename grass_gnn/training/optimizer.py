"""Lion or AdamW, with biases left undecayed."""

from __future__ import annotations

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

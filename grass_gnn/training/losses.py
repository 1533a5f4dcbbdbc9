"""Losses of the ten benchmarks, with label smoothing, class weights and missing targets."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from grass_gnn.config import TaskConfig

AddUp = Callable[[Tensor], Tensor]


def alone(values: Tensor) -> Tensor:
    """The sum over processes where there is only one."""
    return values


def task_loss(
    task: TaskConfig, prediction: Tensor, target: Tensor, smoothing: float, add_up: AddUp = alone
) -> Tensor:
    """The loss of predictions [M, outputs] against targets, averaged over what is known.

    Processes that share a batch get their parts of the loss, which add up to that average.

    Args:
        task: What is predicted, and its loss.
        prediction: Values in the units of the targets, or logits.
        target: Classes [M], or values or labels [M, outputs] in which NaN means missing.
        smoothing: q of label smoothing, for classifications.
        add_up: Adds a tensor up over processes, without gradients.
    """
    if task.loss in ("cross-entropy", "weighted-cross-entropy"):
        target = target.view(-1).long()
        weight, count = None, _count(target)
        if task.loss == "weighted-cross-entropy":
            weight = class_weights(target, task.outputs, add_up).to(prediction.dtype)
            count = weight[target].sum()
        total = F.cross_entropy(
            prediction, target, weight, label_smoothing=smoothing, reduction="sum"
        )
        return total / add_up(count)
    target = target.view_as(prediction).to(prediction.dtype)
    if len(task.target_scale) > 1:  # targets of different units weigh the same
        scale = prediction.new_tensor(task.target_scale)
        prediction, target = prediction / scale, target / scale
    known = ~torch.isnan(target)
    prediction, target = prediction[known], target[known]
    if task.loss == "l1":
        total = F.l1_loss(prediction, target, reduction="sum")
    elif task.loss == "mse":
        total = F.mse_loss(prediction, target, reduction="sum")
    else:
        smoothed = target * (1 - smoothing) + smoothing / 2
        total = F.binary_cross_entropy_with_logits(prediction, smoothed, reduction="sum")
    return total / add_up(_count(target))


def class_weights(target: Tensor, classes: int, add_up: AddUp = alone) -> Tensor:
    """(N − N_c) / N over the classes of a batch [M] → [classes]: rare classes weigh more."""
    counts = add_up(torch.bincount(target, minlength=classes))
    return (counts.sum() - counts) / counts.sum().clamp(min=1)


def _count(target: Tensor) -> Tensor:
    return torch.tensor(float(target.numel()), device=target.device)

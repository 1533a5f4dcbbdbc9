"""Losses of the ten benchmarks, with label smoothing, class weights and missing targets."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from grass_gnn.config import TaskConfig


def task_loss(task: TaskConfig, prediction: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """The loss of predictions [M, outputs] against targets, averaged over what is known.

    Args:
        task: What is predicted, and its loss.
        prediction: Values in the units of the targets, or logits.
        target: Classes [M], or values or labels [M, outputs] in which NaN means missing.
        smoothing: q of label smoothing, for classifications.
    """
    if task.loss in ("cross-entropy", "weighted-cross-entropy"):
        target = target.view(-1).long()
        weight = None
        if task.loss == "weighted-cross-entropy":
            weight = class_weights(target, task.outputs).to(prediction.dtype)
        return F.cross_entropy(prediction, target, weight, label_smoothing=smoothing)
    target = target.view_as(prediction).to(prediction.dtype)
    if len(task.target_scale) > 1:  # targets of different units weigh the same
        scale = prediction.new_tensor(task.target_scale)
        prediction, target = prediction / scale, target / scale
    known = ~torch.isnan(target)
    prediction, target = prediction[known], target[known]
    if task.loss == "l1":
        return F.l1_loss(prediction, target)
    if task.loss == "mse":
        return F.mse_loss(prediction, target)
    smoothed = target * (1 - smoothing) + smoothing / 2
    return F.binary_cross_entropy_with_logits(prediction, smoothed)


def class_weights(target: Tensor, classes: int) -> Tensor:
    """(N − N_c) / N over the classes of a batch [M] → [classes]: rare classes weigh more."""
    counts = torch.bincount(target, minlength=classes)
    return (len(target) - counts) / max(len(target), 1)

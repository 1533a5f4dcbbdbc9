"""Metrics of the ten benchmarks, over all predictions of a split at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor
from torchmetrics.functional import classification as tm
from torchmetrics.functional import r2_score

from grass_gnn.config import TaskConfig

LOWER_IS_BETTER = {"mae", "rmse"}
"""Metrics of which less is better."""


def to_probabilities(task: TaskConfig, prediction: Tensor) -> Tensor:
    """What predictions are averaged as: probabilities of classes, or the values themselves."""
    if task.kind == "classification":
        return prediction.softmax(dim=1)
    if task.kind in ("binary", "multilabel"):
        return prediction.sigmoid()
    return prediction


def score(task: TaskConfig, prediction: Tensor, target: Tensor, metric: str | None = None) -> float:
    """The task's metric (or another one) of predictions.

    Args:
        task: What is predicted.
        prediction: Values, or probabilities, [M, outputs].
        target: Classes [M], or values or labels [M, outputs] in which NaN means missing.
        metric: The name of the metric; that of the task if not given.
    """
    metric = metric or task.metric
    prediction = prediction.detach().double().cpu()
    target = target.detach().cpu()
    if task.kind == "classification":
        return _multiclass(metric, prediction, target.view(-1).long(), task.outputs)
    target = target.view_as(prediction).double()
    if task.kind == "regression":
        return _regression(metric, prediction, target)
    return _mean_over_labels(metric, prediction, target)


def _multiclass(metric: str, prediction: Tensor, target: Tensor, classes: int) -> float:
    if metric == "accuracy":
        return float(tm.multiclass_accuracy(prediction, target, classes, average="micro"))
    if metric == "class-accuracy":  # the mean of per-class accuracies
        return float(tm.multiclass_recall(prediction, target, classes, average="macro"))
    return float(tm.multiclass_f1_score(prediction, target, classes, average="macro"))


def _regression(metric: str, prediction: Tensor, target: Tensor) -> float:
    known = ~torch.isnan(target)
    if metric == "r2":  # the mean over targets
        columns = zip(prediction.T, target.T, known.T, strict=True)
        values = [r2_score(p[k], t[k]) for p, t, k in columns if int(k.sum()) > 1]
        return float(torch.stack(values).mean()) if values else float("nan")
    error = (prediction - target)[known]
    return float(error.abs().mean() if metric == "mae" else error.square().mean().sqrt())


def _mean_over_labels(metric: str, prediction: Tensor, target: Tensor) -> float:
    """Macro average over the labels that occur both ways, as OGB's evaluator takes it."""
    functions: dict[str, Callable[..., Tensor]] = {
        "ap": tm.binary_average_precision,
        "auc": tm.binary_auroc,
        "accuracy": tm.binary_accuracy,
        "f1": tm.binary_f1_score,
    }
    values = []
    for p, t in zip(prediction.T, target.T, strict=True):
        known = ~torch.isnan(t)
        labels = t[known].long()
        if labels.unique().numel() < (2 if metric in ("ap", "auc") else 1):
            continue
        values.append(functions[metric](p[known], labels))
    return float(torch.stack(values).mean()) if values else float("nan")


def rank_correlation(spread: Tensor, error: Tensor) -> float | None:
    """Spearman's ρ of predicted spread and absolute error, its mean over targets.

    Args:
        spread: Standard deviations [M, outputs].
        error: Absolute errors [M, outputs], NaN where the target is missing.

    Returns:
        None where either is the same for all.
    """
    found = []
    for s, e in zip(spread.double().T.numpy(), error.double().T.numpy(), strict=True):
        known = ~np.isnan(e)
        s, e = s[known], e[known]
        if len(s) > 1 and np.ptp(s) > 0 and np.ptp(e) > 0:
            found.append(float(spearmanr(s, e)[0]))
    return sum(found) / len(found) if found else None

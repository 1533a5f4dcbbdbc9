"""Metrics by name: how they are shown and compared."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor


class Metric(NamedTuple):
    """How a metric is shown and compared."""

    title: str
    lower_is_better: bool = False
    in_percent: bool = False  # in the tables of the paper
    lowest: float = 0.0
    highest: float = 1.0


METRICS = {
    "mae": Metric("MAE", lower_is_better=True, highest=math.inf),
    "rmse": Metric("RMSE", lower_is_better=True, highest=math.inf),
    "r2": Metric("R²", lowest=-math.inf),
    "accuracy": Metric("accuracy", in_percent=True),
    "class-accuracy": Metric("accuracy, mean of classes", in_percent=True),
    "f1": Metric("macro F1"),
    "ap": Metric("average precision"),
    "auc": Metric("ROC-AUC"),
}
"""The metrics by name."""

LOWER_IS_BETTER = {name for name, metric in METRICS.items() if metric.lower_is_better}
"""Metrics for which lower is better."""


def format_score(value: float) -> str:
    """A score for a table: four decimals, or four digits of small ones."""
    return f"{value:.3e}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"


def rank_correlation(std: Tensor, error: Tensor) -> float | None:
    """Spearman's ρ of predicted standard deviation and absolute error, averaged over targets.

    Args:
        std: Standard deviations [M, outputs].
        error: Absolute errors [M, outputs], NaN where the target is missing.

    Returns:
        None if either is constant.
    """
    from scipy.stats import spearmanr

    found = []
    for s, e in zip(std.double().T.numpy(), error.double().T.numpy(), strict=True):
        known = ~np.isnan(e)
        s, e = s[known], e[known]
        if len(s) > 1 and np.ptp(s) > 0 and np.ptp(e) > 0:
            found.append(float(spearmanr(s, e)[0]))
    return sum(found) / len(found) if found else None

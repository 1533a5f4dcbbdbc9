"""The former home of the metrics, which are now methods of :class:`grass_gnn.tasks.Task`."""

from __future__ import annotations

import warnings

from torch import Tensor

from grass_gnn.config import TaskConfig
from grass_gnn.tasks import LOWER_IS_BETTER, make_task

__all__ = ["LOWER_IS_BETTER", "score"]


def score(task: TaskConfig, prediction: Tensor, target: Tensor, metric: str | None = None) -> float:
    """Deprecated: use ``make_task(task).score`` (see :meth:`grass_gnn.tasks.Task.score`)."""
    warnings.warn(
        "score is deprecated: use grass_gnn.tasks.make_task(config.task).score.",
        DeprecationWarning,
        stacklevel=2,
    )
    return make_task(task).score(prediction, target, metric)

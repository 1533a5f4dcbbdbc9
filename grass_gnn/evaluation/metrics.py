"""The metric of a task as a function; :meth:`grass_gnn.tasks.Task.score` computes it."""

from __future__ import annotations

from torch import Tensor

from grass_gnn.config import TaskConfig
from grass_gnn.tasks import LOWER_IS_BETTER, make_task

__all__ = ["LOWER_IS_BETTER", "score"]


def score(task: TaskConfig, prediction: Tensor, target: Tensor, metric: str | None = None) -> float:
    """A metric of predictions [M, outputs]; see :meth:`grass_gnn.tasks.Task.score`."""
    return make_task(task).score(prediction, target, metric)

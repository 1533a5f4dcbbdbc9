"""The loss of a task as a function; :meth:`grass_gnn.tasks.Task.loss` computes it."""

from __future__ import annotations

from torch import Tensor

from grass_gnn.config import TaskConfig
from grass_gnn.tasks import AddUp, alone, make_task


def task_loss(
    task: TaskConfig, prediction: Tensor, target: Tensor, smoothing: float, add_up: AddUp = alone
) -> Tensor:
    """The loss of predictions [M, outputs]; see :meth:`grass_gnn.tasks.Task.loss`."""
    return make_task(task).loss(prediction, target, smoothing, add_up)

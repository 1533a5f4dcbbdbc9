"""The former home of the losses, which are now methods of :class:`grass_gnn.tasks.Task`."""

from __future__ import annotations

import warnings

from torch import Tensor

from grass_gnn.config import TaskConfig
from grass_gnn.tasks import AddUp, alone, make_task


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

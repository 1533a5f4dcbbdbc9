"""Kinds of tasks: targets, loss, activation, metrics, and how predictions are written and shown.

A :class:`Task` is made from the settings of a run, ``make_task(config.task)``, and contains
everything that depends on the kind of task. To add one, write a subclass, list it in
:data:`TASKS`, and add its name and settings to ``config/sections.py``.
"""

from __future__ import annotations

from grass_gnn.config import TaskConfig
from grass_gnn.tasks.base import AddUp, ProbabilityTask, Task, alone
from grass_gnn.tasks.classification import (
    Binary,
    Classification,
    Multilabel,
    class_weights,
    label_weights,
)
from grass_gnn.tasks.infer_kind import (
    FEW_TARGETS,
    TargetColumn,
    kind_of_classes,
    kind_of_columns,
    kind_of_tensor,
    too_many_classes,
)
from grass_gnn.tasks.metrics import (
    LOWER_IS_BETTER,
    METRICS,
    Metric,
    format_score,
    rank_correlation,
)
from grass_gnn.tasks.regression import CONSTANT, TAIL, TINY, Regression

__all__ = [
    "CONSTANT",
    "FEW_TARGETS",
    "LOWER_IS_BETTER",
    "METRICS",
    "TAIL",
    "TASKS",
    "TINY",
    "AddUp",
    "Binary",
    "Classification",
    "Metric",
    "Multilabel",
    "ProbabilityTask",
    "Regression",
    "TargetColumn",
    "Task",
    "alone",
    "class_weights",
    "format_score",
    "kind_of_classes",
    "kind_of_columns",
    "kind_of_tensor",
    "label_weights",
    "make_task",
    "rank_correlation",
    "too_many_classes",
]

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Regression, Binary, Classification, Multilabel)
}
"""The kinds of tasks by name."""


def make_task(config: TaskConfig) -> Task:
    """The task that the settings ``config.task`` of a run describe.

    Example:
        >>> from grass_gnn import GRASSConfig
        >>> make_task(GRASSConfig.preset("cluster").task).summary
        'classification of 6 classes'
    """
    return TASKS[config.kind](config)

"""What a kind of task has to define: targets, loss, activation, metrics and output columns."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from grass_gnn.config import TASK_KINDS, TaskConfig
from grass_gnn.errors import DataError
from grass_gnn.tasks.metrics import METRICS

AddUp = Callable[[Tensor], Tensor]
"""Sums a tensor over all processes, without gradients."""


def alone(values: Tensor) -> Tensor:
    """The sum over processes if there is only one."""
    return values


Cells = Literal["numbers", "labels", "classes"]


class Task(ABC):
    """A kind of task with its settings.

    Args:
        config: The settings; ``config.kind`` is the name of the class.
    """

    name: ClassVar[str]
    cells: ClassVar[Cells]
    """What the target columns of a table contain: numbers, yes or no, or names of classes."""
    max_classes: ClassVar[float] = math.inf
    """The largest number of classes in a target column."""
    predicts_probabilities: ClassVar[bool] = True
    chart: ClassVar[Literal["scatter", "confusion"] | None] = None
    """How reports plot predictions against targets."""
    placeholder: ClassVar[float] = math.nan
    """Value of a missing target."""

    def __init__(self, config: TaskConfig) -> None:
        self.config = config
        self.level, self.outputs, self.metric = config.level, config.outputs, config.metric

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config!r})"

    # Settings ------------------------------------------------------------------------------------

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of all metrics of this kind of task."""
        return TASK_KINDS[self.name].metrics

    def title(self, metric: str | None = None) -> str:
        """How a metric, by default that of the task, is called in reports."""
        return METRICS[metric or self.metric].title

    @property
    def classes(self) -> int | None:
        """Number of mutually exclusive classes; None if the outputs are not classes."""
        return None

    @property
    def summary(self) -> str:
        """The task in a few words, such as ``regression of 3 targets``."""
        return self.name if self.outputs == 1 else f"{self.name} of {self.outputs} targets"

    @classmethod
    def count_outputs(cls, columns: int, classes: int) -> int:
        """Number of outputs for targets with this many columns or classes."""
        return columns

    @classmethod
    def default_settings(
        cls, outputs: int, missing: bool = False, level: str = "graph"
    ) -> dict[str, Any]:
        """Settings of a task of this kind with its default loss and metric.

        Args:
            outputs: Number of targets, labels or classes.
            missing: Whether some targets are missing.
            level: What has targets: ``"graph"``, ``"node"`` or ``"edge"``.
        """
        rules = TASK_KINDS[cls.name]
        return {
            "level": level,
            "kind": cls.name,
            "outputs": outputs,
            "loss": rules.losses[0],
            "metric": rules.metrics[0],
            "missing": missing and rules.may_be_missing,
        }

    @classmethod
    def check_classes(cls, classes: Sequence[str]) -> None:
        """Check that a target column contains the right number of classes.

        Raises:
            DataError: There are too few or too many.
        """
        if len(classes) < 2 or len(classes) > cls.max_classes:
            count = "1 class" if len(classes) == 1 else f"{len(classes)} classes"
            hint = "" if len(classes) > 1 else "; cells such as NA, ? or - count as missing values"
            raise DataError(
                f"The target has {count} ({', '.join(classes[:5])}), but a {cls.name} task has "
                f"{'two' if cls.max_classes == 2 else 'at least two'}{hint}."
            )

    def scaling(self, targets: Sequence[Any]) -> dict[str, list[float]]:
        """The settings ``target_scale`` and ``target_shift`` for training targets, if any."""
        return {}

    # Targets -------------------------------------------------------------------------------------

    def num_rows(self, graphs: int, nodes: int, edges: int) -> int:
        """Number of graphs, nodes or edges that have targets, depending on the level."""
        return {"graph": graphs, "node": nodes, "edge": edges}[self.level]

    @property
    def target_columns(self) -> int:
        """Number of target values per graph, node or edge."""
        return self.outputs

    @property
    def target_type(self) -> torch.dtype:
        """Type of the targets in a batch."""
        return torch.float32

    def target_shape(self, rows: int) -> tuple[int, ...]:
        """Shape of the targets of ``rows`` graphs, nodes or edges."""
        return (rows, self.outputs)

    def check_targets(self, y: Tensor, rows: int) -> Tensor:
        """Targets of a graph in the shape and type of the loss.

        Args:
            y: Targets in any shape with the right number of values; NaN where one is missing.
            rows: Number of graphs (1), nodes or edges that have targets.

        Raises:
            DataError: There are too many or too few, or a value is not valid for the task.
        """
        columns = self.target_columns
        if y.numel() != rows * columns:
            raise DataError(
                f"The target y has shape {list(y.shape)}, "
                f"but the task expects {columns} for each {self.level}, of which there are {rows}."
            )
        if y.dim() == 2 and y.size(0) != rows and rows > 1 and columns > 1:
            raise DataError(
                f"The target y has shape {list(y.shape)}, but the task expects a row for each "
                f"{self.level}: [{rows}, {columns}]."
            )
        y = y.reshape(rows, columns)
        known = ~torch.isnan(y) if self.config.missing else torch.ones_like(y, dtype=torch.bool)
        if not bool(torch.isfinite(y[known].float()).all()):
            raise DataError("The target y is not finite.")
        if rows and not bool(known.any()):  # a graph without edges has no targets of edges
            raise DataError("All values of the target y are missing.")
        if problem := self._problem(y, known):
            raise DataError(problem)
        return self.as_targets(y).to(self.target_type)

    def _problem(self, y: Tensor, known: Tensor) -> str | None:
        """What is wrong with finite targets [rows, columns], of which some are known."""
        return None

    def stored_problem(self, y: Tensor) -> str | None:
        """What is wrong with targets that were read from a file, if anything."""
        return None

    def as_targets(self, values: Tensor) -> Tensor:
        """Values [M, target_columns] in the shape of targets."""
        return values

    @abstractmethod
    def random_targets(self, rows: int, generator: torch.Generator) -> Tensor:
        """Targets for tests."""

    # From the model's outputs to predictions -----------------------------------------------------

    @abstractmethod
    def loss(
        self, prediction: Tensor, target: Tensor, smoothing: float, add_up: AddUp = alone
    ) -> Tensor:
        """The loss, averaged over the known targets.

        Processes that share a batch get their parts of the loss, which add up to that average.

        Args:
            prediction: Values in the units of the targets, or logits [M, outputs].
            target: Classes [M], or values or labels [M, outputs], NaN where one is missing.
            smoothing: q of label smoothing, for classes and labels.
            add_up: Sums a tensor over all processes, without gradients.
        """

    @staticmethod
    @abstractmethod
    def activate(output: Tensor) -> Tensor:
        """Predictions from the model's outputs [M, outputs]: values, or probabilities from logits.

        Predictions are averaged over rewirings and over the models of an ensemble in this form.
        """

    @staticmethod
    @abstractmethod
    def inverse(prediction: Tensor) -> Tensor:
        """Outputs that :meth:`activate` turns into these predictions."""

    def decide(self, mean: Tensor) -> Tensor:
        """Decisions from averaged predictions [M, outputs]: classes [M], or the values."""
        return mean

    def score(self, prediction: Tensor, target: Tensor, metric: str | None = None) -> float:
        """A metric of predictions, computed in double precision.

        Args:
            prediction: Values or probabilities [M, outputs].
            target: Classes [M], or values or labels [M, outputs], NaN where one is missing.
            metric: Name of the metric; by default that of the task.
        """
        return self._score(
            metric or self.metric, prediction.detach().double().cpu(), target.detach().cpu()
        )

    @abstractmethod
    def _score(self, metric: str, prediction: Tensor, target: Tensor) -> float: ...

    def spread_correlation(self, mean: Tensor, std: Tensor, target: Tensor) -> float | None:
        """For numbers, Spearman's ρ of predicted std and absolute error [M, outputs]."""
        return None

    # Tables and pages ----------------------------------------------------------------------------

    def output_columns(
        self, targets: Sequence[str], classes: Sequence[str]
    ) -> list[tuple[str, str]]:
        """Names of the columns of each output and of its standard deviation.

        Args:
            targets: Names of the target columns.
            classes: Names of the classes, if the targets are classes.
        """
        ending = "prob" if self.predicts_probabilities else "pred"
        return [(f"{name}_{ending}", f"{name}_std") for name in targets]

    @staticmethod
    def interval_columns(value: str) -> list[str]:
        """Names of the two columns of an interval, derived from that of the prediction."""
        name = value.removesuffix("_pred")
        return [f"{name}_lower", f"{name}_upper"]

    def answer_columns(self, targets: Sequence[str]) -> list[str]:
        """Names of the columns that precede these and contain the answer in words, if any."""
        return []

    def answer_cells(self, mean: Tensor, classes: Sequence[str]) -> list[str]:
        """The cells of these columns, for one prediction [outputs]."""
        return []

    def output_names(self, targets: Sequence[str], classes: Sequence[str]) -> list[str]:
        """Readable names of the outputs; arguments as for :meth:`output_columns`."""
        if len(targets) == self.outputs:
            return list(targets)
        return ["output"] if self.outputs == 1 else [f"output {n}" for n in range(self.outputs)]

    def headline(self, names: Sequence[str], mean: Tensor) -> str:
        """The answer in words for one prediction [outputs]; empty for regression."""
        return ""

    def true_values(self, names: Sequence[str], target: Tensor) -> dict[str, str | float]:
        """The targets of one graph [1, outputs] or [1], by name."""
        return dict(zip(names, target.view(-1).tolist(), strict=True))


class ProbabilityTask(Task):
    """A task whose predictions are probabilities, which a temperature calibrates."""

    confidence_label: ClassVar[str] = "predicted probability"
    accuracy_label: ClassVar[str] = "observed frequency"

    @staticmethod
    @abstractmethod
    def log_loss(probability: Tensor, target: Tensor) -> float:
        """Mean negative log-likelihood of known targets; shapes as in :meth:`Task.score`."""

    @staticmethod
    @abstractmethod
    def confidence(probability: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Predicted probabilities [K], and whether the predicted event is true [K]."""


def known_targets(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Predictions, targets and weights without the missing targets.

    On a CPU, elements without a target are dropped. On a GPU, the CPU would have to wait for their
    number; there they remain, as zeros with zero weight.
    """
    known = ~torch.isnan(target)
    if target.device.type == "cpu":
        prediction, target = prediction[known], target[known]
        return prediction, target, torch.ones_like(target)
    prediction, target = torch.where(known, prediction, 0.0), torch.where(known, target, 0.0)
    return prediction, target, known.to(prediction.dtype)


def mean_of(total: Tensor, count: Tensor) -> Tensor:
    """Total [] divided by the number or weight [] of targets; 0 with zero gradients without any.

    Nothing may count in a batch: its mask selects nothing, or all its nodes have the same class,
    which then has no weight.
    """
    counts = count > 0
    return torch.where(counts, total, 0.0) / torch.where(counts, count, 1.0)

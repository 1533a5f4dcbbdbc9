"""Kinds of tasks: targets, loss, activation, metrics, and how predictions are written and shown.

A :class:`Task` is made from the settings of a run, ``make_task(config.task)``, and contains
everything that depends on the kind of task. To add one, write a subclass here and add its name and
settings to ``config/settings.py``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from grass_gnn.config import TASK_KINDS, TaskConfig
from grass_gnn.errors import DataError

AddUp = Callable[[Tensor], Tensor]
"""Sums a tensor over all processes, without gradients."""


def alone(values: Tensor) -> Tensor:
    """The sum over processes if there is only one."""
    return values


Cells = Literal["numbers", "labels", "classes"]


class Metric(NamedTuple):
    """How a metric is shown and compared."""

    title: str
    lower_is_better: bool = False
    in_percent: bool = False  # in the tables of the paper


METRICS = {
    "mae": Metric("MAE", lower_is_better=True),
    "rmse": Metric("RMSE", lower_is_better=True),
    "r2": Metric("R²"),
    "accuracy": Metric("accuracy", in_percent=True),
    "class-accuracy": Metric("accuracy, mean of classes", in_percent=True),
    "f1": Metric("macro F1"),
    "ap": Metric("average precision"),
    "auc": Metric("ROC-AUC"),
}

# Errors, in standard deviations, that the loss l1+tail gives more weight: those of rare structures.
# Larger ones may be wrong targets.
TAIL = (1.0, 5.0)

_CONSTANT = 1e-12  # spread of a constant target, relative to its size
_ROUNDING = 1e-6  # of targets and predictions in single precision, relative to their size
_TINY = 1e-4  # scale of targets

LOWER_IS_BETTER = {name for name, metric in METRICS.items() if metric.lower_is_better}
"""Metrics for which lower is better."""


def format_score(value: float) -> str:
    """A score for a table: four decimals, or four digits of small ones."""
    return f"{value:.3e}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"


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
        y = y.reshape(rows, columns)
        known = ~torch.isnan(y) if self.config.missing else torch.ones_like(y, dtype=torch.bool)
        if not bool(torch.isfinite(y[known].float()).all()):
            raise DataError("The target y is not finite.")
        if not bool(known.any()):
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


class Regression(Task):
    """Numbers; outputs are scaled and shifted, so that the model learns standardised targets."""

    name = "regression"
    cells = "numbers"
    predicts_probabilities = False
    chart = "scatter"

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        self._scale = torch.tensor(config.target_scale)

    def _scale_like(self, prediction: Tensor) -> Tensor:
        """The scale of each target, copied to the device of the predictions once."""
        kind = prediction.device, prediction.dtype
        if (self._scale.device, self._scale.dtype) != kind:
            self._scale = prediction.new_tensor(self.config.target_scale)
        return self._scale

    def scaling(self, targets: Sequence[Any]) -> dict[str, list[float]]:
        """Standard deviation and mean of each target over the training set, missing ones ignored.

        Args:
            targets: The targets of each training graph.
        """
        values = torch.cat([torch.as_tensor(y).view(-1, self.outputs).double() for y in targets])
        known = ~torch.isnan(values)
        count = known.sum(dim=0).clamp(min=1)
        filled = torch.where(known, values, 0.0)
        mean = filled.sum(dim=0) / count
        spread = (torch.where(known, values - mean, 0.0).square().sum(dim=0) / count).sqrt()
        size = (filled.square().sum(dim=0) / count).sqrt()  # rates of 1e-13 are not constant
        scale = torch.where(spread > _CONSTANT * size, spread, 1.0)
        return {"target_scale": scale.tolist(), "target_shift": mean.tolist()}

    def random_targets(self, rows: int, generator: torch.Generator) -> Tensor:
        """Standard normal numbers [rows, outputs]."""
        return torch.randn(rows, self.outputs, generator=generator)

    def loss(
        self, prediction: Tensor, target: Tensor, smoothing: float, add_up: AddUp = alone
    ) -> Tensor:
        """Mean absolute error, alone or with its tail, or squared error; see :meth:`Task.loss`."""
        target = target.view_as(prediction).to(prediction.dtype)
        tail = self.config.loss == "l1+tail"
        # Different units get the same weight, and tiny ones gradients that optimisers notice.
        tiny = min(self.config.target_scale) < _TINY
        if len(self.config.target_scale) > 1 or tail or tiny:
            scale = self._scale_like(prediction)
            prediction, target = prediction / scale, target / scale
        prediction, target, weight = _known(prediction, target)
        error = F.mse_loss if self.config.loss == "mse" else F.l1_loss
        total = error(prediction, target, reduction="sum")
        if tail:
            near, far = TAIL
            excess = ((prediction - target).abs() - near).clamp(0, far - near)
            total = total + excess.square().sum()
        return total / add_up(weight.sum())

    @staticmethod
    def activate(output: Tensor) -> Tensor:
        """The values themselves."""
        return output

    @staticmethod
    def inverse(prediction: Tensor) -> Tensor:
        """The values themselves."""
        return prediction

    def _score(self, metric: str, prediction: Tensor, target: Tensor) -> float:
        target = target.view_as(prediction).double()
        known = ~torch.isnan(target)
        if metric == "r2":  # the mean over targets, all at once: there may be hundreds
            count = known.sum(dim=0)  # [outputs]
            filled = torch.where(known, target, 0.0)
            centred = torch.where(known, target - filled.sum(dim=0) / count.clamp(min=1), 0.0)
            residual = torch.where(known, prediction - target, 0.0).square().sum(dim=0)
            total = centred.square().sum(dim=0)
            # Of a constant target, 1 for an exact prediction and 0 for others.
            rounding = (_ROUNDING * filled).square().sum(dim=0)
            exact = (residual <= rounding).to(total.dtype)
            values = torch.where(total <= rounding, exact, 1 - residual / total)[count > 1]
            return float(values.mean()) if len(values) else math.nan
        error = (prediction - target)[known]
        return float(error.abs().mean() if metric == "mae" else error.square().mean().sqrt())

    def spread_correlation(self, mean: Tensor, std: Tensor, target: Tensor) -> float | None:
        """See :func:`rank_correlation`."""
        return rank_correlation(std, (mean - target.view_as(mean)).abs())


class Classification(ProbabilityTask):
    """One of several classes, with a softmax."""

    name = "classification"
    cells = "classes"
    chart = "confusion"
    placeholder = 0.0  # masked out, but still a class
    confidence_label = "probability of the most likely class"
    accuracy_label = "accuracy"

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.outputs

    @property
    def summary(self) -> str:
        """Such as ``classification of 3 classes``."""
        return f"{self.name} of {self.outputs} classes"

    @classmethod
    def count_outputs(cls, columns: int, classes: int) -> int:
        """One output per class."""
        return max(classes, 2)

    @property
    def target_columns(self) -> int:
        """One: the number of the class."""
        return 1

    @property
    def target_type(self) -> torch.dtype:
        """Whole numbers."""
        return torch.int64

    def target_shape(self, rows: int) -> tuple[int, ...]:
        """Shape [rows]."""
        return (rows,)

    def _problem(self, y: Tensor, known: Tensor) -> str | None:
        if y.is_floating_point() and not torch.equal(y, y.round()):
            return "The target y is not a whole number, so it cannot be a class."
        outside = (y < 0) | (y >= self.outputs)
        if bool(outside.any()):
            value, last = y[outside][0].item(), self.outputs - 1
            return f"The target y is {value:g}, but classes are 0 to {last}."
        return None

    def stored_problem(self, y: Tensor) -> str | None:
        """Whether there is a class that does not exist."""
        if len(y) and (int(y.min()) < 0 or int(y.max()) >= self.outputs):
            return "y contains a class that does not exist"
        return None

    def as_targets(self, values: Tensor) -> Tensor:
        """Class numbers [M]."""
        return values.flatten().long()

    def random_targets(self, rows: int, generator: torch.Generator) -> Tensor:
        """Uniform classes [rows]."""
        return torch.randint(self.outputs, (rows,), generator=generator)

    def loss(
        self, prediction: Tensor, target: Tensor, smoothing: float, add_up: AddUp = alone
    ) -> Tensor:
        """Cross-entropy, possibly with class weights; see :meth:`Task.loss`."""
        target = target.view(-1).long()
        weight, count = None, _count(target)
        if self.config.loss == "weighted-cross-entropy":
            weight = class_weights(target, self.outputs, add_up).to(prediction.dtype)
            count = weight[target].sum()
        total = F.cross_entropy(
            prediction, target, weight, label_smoothing=smoothing, reduction="sum"
        )
        return total / add_up(count)

    @staticmethod
    def activate(output: Tensor) -> Tensor:
        """Softmax."""
        return output.softmax(dim=-1)

    @staticmethod
    def inverse(prediction: Tensor) -> Tensor:
        """Logarithms of the probabilities."""
        return prediction.clamp(min=1e-30).log()

    def decide(self, mean: Tensor) -> Tensor:
        """The most likely class [M]."""
        return mean.argmax(dim=1)

    def _score(self, metric: str, prediction: Tensor, target: Tensor) -> float:
        from torchmetrics.functional import classification as tm

        target, classes = target.view(-1).long(), self.outputs
        if metric == "accuracy":
            return float(tm.multiclass_accuracy(prediction, target, classes, average="micro"))
        if metric == "class-accuracy":  # the mean of per-class accuracies
            return float(tm.multiclass_recall(prediction, target, classes, average="macro"))
        return float(tm.multiclass_f1_score(prediction, target, classes, average="macro"))

    @staticmethod
    def log_loss(probability: Tensor, target: Tensor) -> float:
        """Mean −log p of the true class."""
        exact = probability.double().clamp(1e-12, 1 - 1e-12)
        return float(F.nll_loss(exact.log(), target.long()))

    @staticmethod
    def confidence(probability: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Probability of the most likely class [M], and whether it is the true one [M]."""
        confidence, best = probability.max(dim=1)
        return confidence, best == target

    def _class_names(self, classes: Sequence[str], unnamed: str) -> list[str]:
        return list(classes) or [f"{unnamed}{number}" for number in range(self.outputs)]

    def output_columns(
        self, targets: Sequence[str], classes: Sequence[str]
    ) -> list[tuple[str, str]]:
        """A probability and its standard deviation per class."""
        (target, *_), names = targets, self._class_names(classes, "")
        return [(f"{target}_prob_{name}", f"{target}_std_{name}") for name in names]

    def answer_columns(self, targets: Sequence[str]) -> list[str]:
        """The column of the most likely class."""
        return [f"{targets[0]}_pred"]

    def answer_cells(self, mean: Tensor, classes: Sequence[str]) -> list[str]:
        """The most likely class."""
        return [self._class_names(classes, "")[int(mean.argmax())]]

    def output_names(self, targets: Sequence[str], classes: Sequence[str]) -> list[str]:
        """Names of the classes."""
        return self._class_names(classes, "class ")

    def headline(self, names: Sequence[str], mean: Tensor) -> str:
        """The most likely class."""
        return names[int(mean.argmax())]

    def true_values(self, names: Sequence[str], target: Tensor) -> dict[str, str | float]:
        """The name of the true class."""
        return {"class": names[int(target[0])]}


class Multilabel(ProbabilityTask):
    """Several labels that are true or false, with a sigmoid each."""

    name = "multilabel"
    cells: ClassVar[Cells] = "labels"

    def _problem(self, y: Tensor, known: Tensor) -> str | None:
        outside = known & (y != 0) & (y != 1)
        if bool(outside.any()):
            return f"The target y is {y[outside][0].item():g}, but labels are 0 or 1."
        return None

    def random_targets(self, rows: int, generator: torch.Generator) -> Tensor:
        """Labels [rows, outputs], half of them true."""
        return (torch.randn(rows, self.outputs, generator=generator) > 0).float()

    def loss(
        self, prediction: Tensor, target: Tensor, smoothing: float, add_up: AddUp = alone
    ) -> Tensor:
        """Binary cross-entropy, possibly weighted; see :meth:`Task.loss`."""
        target = target.view_as(prediction).to(prediction.dtype)
        given, known_target, weight = _known(prediction, target)
        count = add_up(weight.sum())
        if self.config.loss == "weighted-bce":
            weight = weight * _known(label_weights(target, add_up), target)[0]
        smoothed = known_target * (1 - smoothing) + smoothing / 2
        total = F.binary_cross_entropy_with_logits(given, smoothed, weight, reduction="sum")
        return total / count

    @staticmethod
    def activate(output: Tensor) -> Tensor:
        """Sigmoid."""
        return output.sigmoid()

    @staticmethod
    def inverse(prediction: Tensor) -> Tensor:
        """Log-odds."""
        return prediction.logit(eps=1e-12)

    def _score(self, metric: str, prediction: Tensor, target: Tensor) -> float:
        """Macro average over the labels with both true and false values, as in OGB's evaluator."""
        from torchmetrics.functional import classification as tm

        functions: dict[str, Callable[..., Tensor]] = {
            "ap": tm.binary_average_precision,
            "auc": tm.binary_auroc,
            "accuracy": tm.binary_accuracy,
            "f1": tm.binary_f1_score,
        }
        values = []
        for p, t in zip(prediction.T, target.view_as(prediction).double().T, strict=True):
            known = ~torch.isnan(t)
            labels = t[known].long()
            if labels.unique().numel() < (2 if metric in ("ap", "auc") else 1):
                continue
            values.append(functions[metric](p[known], labels))
        return float(torch.stack(values).mean()) if values else math.nan

    @staticmethod
    def log_loss(probability: Tensor, target: Tensor) -> float:
        """Mean binary cross-entropy over all known labels."""
        exact = probability.double().clamp(1e-12, 1 - 1e-12)
        known = ~torch.isnan(target)
        return float(F.binary_cross_entropy(exact[known], target[known].double()))

    @staticmethod
    def confidence(probability: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Probability and truth of all known labels together."""
        known = ~torch.isnan(target)
        return probability[known], target[known] == 1


class Binary(Multilabel):
    """One yes/no label, or one of two named classes: the probability of the second."""

    name = "binary"
    cells = "classes"
    max_classes = 2

    @staticmethod
    def _named(classes: Sequence[str]) -> bool:
        return list(classes) not in ([], ["0", "1"])

    def output_columns(
        self, targets: Sequence[str], classes: Sequence[str]
    ) -> list[tuple[str, str]]:
        """The probability of the second class, named after it unless the classes are 0 and 1."""
        if self._named(classes):
            return [(f"{targets[0]}_prob_{classes[1]}", f"{targets[0]}_std")]
        return super().output_columns(targets, classes)

    def output_names(self, targets: Sequence[str], classes: Sequence[str]) -> list[str]:
        """The target, with the class whose probability is predicted."""
        if targets and self._named(classes):
            return [f"{targets[0]}: {classes[1]}"]
        return super().output_names(targets, classes)


TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Regression, Binary, Classification, Multilabel)
}


def make_task(config: TaskConfig) -> Task:
    """The task that the settings ``config.task`` of a run describe.

    Example:
        >>> from grass_gnn import GRASSConfig
        >>> make_task(GRASSConfig.preset("cluster").task).summary
        'classification of 6 classes'
    """
    return TASKS[config.kind](config)


# Inferring the kind of task from targets ---------------------------------------------------------


class TargetColumn(NamedTuple):
    """What is known about a target column of a table."""

    distinct: set[str]  # distinct values; equal numbers are written the same way
    is_number: bool  # whether most cells are numbers
    is_label: bool  # whether all cells say yes or no, such as 0 and 1


_MOST_CLASSES = 10  # more distinct whole numbers are taken as quantities


def kind_of_columns(columns: Mapping[str, TargetColumn]) -> tuple[type[Task], str]:
    """The kind of task that fits the target columns of a table, and why.

    Args:
        columns: The target columns (at least one) by name.

    Raises:
        DataError: One of several columns contains text.
    """
    if len(columns) > 1:
        if all(column.is_label for column in columns.values()):
            return Multilabel, "they contain only 0 and 1"
        for name, column in columns.items():
            if not column.is_number:
                raise DataError(
                    f"The target column {name!r} contains text: several targets must be "
                    "numbers, or 0 and 1."
                )
        return Regression, "they contain numbers"
    ((name, (distinct, is_number, _)),) = columns.items()
    if not is_number:
        return kind_of_classes(len(distinct)), f"{name} contains {len(distinct)} different texts"
    if distinct == {"0", "1"}:
        return Binary, f"{name} contains only 0 and 1"
    counting = {str(number) for number in range(len(distinct))}
    if 2 < len(distinct) <= _MOST_CLASSES and distinct == counting:
        hint = f"--task {Regression.name} if these are quantities"
        return Classification, f"{name} contains the numbers 0 to {len(distinct) - 1}; {hint}"
    if len(distinct) == 2:
        both = " and ".join(sorted(distinct))
        hint = f"--task {Binary.name} if these are classes"
        return Regression, f"{name} contains only the numbers {both}; {hint}"
    return Regression, f"{name} contains numbers"


def kind_of_tensor(rows: Tensor, known: Tensor) -> type[Task]:
    """The kind of task that fits target tensors.

    Args:
        rows: Targets [M, columns].
        known: Those that are not missing [K].
    """
    labels = bool(((known == 0) | (known == 1)).all())
    if rows.size(1) > 1:
        return Multilabel if labels else Regression
    if labels:
        return Binary
    return Regression if rows.is_floating_point() else Classification


def kind_of_classes(count: int) -> type[Task]:
    """The kind of task for this many classes: binary for two."""
    return Binary if count == 2 else Classification


# Sums and correlations ---------------------------------------------------------------------------


def class_weights(target: Tensor, classes: int, add_up: AddUp = alone) -> Tensor:
    """(N − N_c) / N for the classes of a batch [M] → [classes]: rare classes get more weight."""
    # Not bincount, which waits for a GPU to find the largest class.
    counts = add_up(target.new_zeros(classes).index_add(0, target, torch.ones_like(target)))
    return (counts.sum() - counts) / counts.sum().clamp(min=1)


def label_weights(target: Tensor, add_up: AddUp = alone) -> Tensor:
    """N / 2N_c for each label of a batch [M, outputs], where N_c is how often its value occurs.

    Both values of a label then have the same total weight; NaN where a label is missing.
    """
    true = add_up((target == 1).sum(dim=0))  # [outputs]
    false = add_up((target == 0).sum(dim=0))
    count = torch.where(target == 1, true, false).clamp(min=1)
    return torch.where(target.isnan(), target, (true + false) / (2 * count))


def _count(target: Tensor) -> Tensor:
    return torch.full((), float(target.numel()), device=target.device)


def _known(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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

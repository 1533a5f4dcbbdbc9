"""Classes and labels: cross-entropy, probabilities, and the columns they are written to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from grass_gnn.tasks.base import AddUp, Cells, ProbabilityTask, alone, known_targets, mean_of


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
        weight, count = None, torch.full((), float(target.numel()), device=target.device)
        if self.config.loss == "weighted-cross-entropy":
            weight = class_weights(target, self.outputs, add_up).to(prediction.dtype)
            count = weight[target].sum()
        total = F.cross_entropy(
            prediction, target, weight, label_smoothing=smoothing, reduction="sum"
        )
        return mean_of(total, add_up(count))

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
        if metric == "class-accuracy":  # the mean of the accuracies of classes that occur
            recall = tm.multiclass_recall(prediction, target, classes, average="none")
            occurs = torch.bincount(target, minlength=classes) > 0
            return float((recall * occurs / occurs.sum()).sum())
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
        given, known_target, weight = known_targets(prediction, target)
        count = add_up(weight.sum())
        if self.config.loss == "weighted-bce":
            weight = weight * known_targets(label_weights(target, add_up), target)[0]
        smoothed = known_target * (1 - smoothing) + smoothing / 2
        total = F.binary_cross_entropy_with_logits(given, smoothed, weight, reduction="sum")
        return mean_of(total, count)

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

    def title(self, metric: str | None = None) -> str:
        """That of the second class, where labels and classes have a mean over several."""
        return "F1" if (metric or self.metric) == "f1" else super().title(metric)

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

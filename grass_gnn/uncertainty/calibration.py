"""Calibration of predicted standard deviations and probabilities.

Standard deviations of errors come from an :class:`~grass_gnn.uncertainty.error_model.ErrorModel`,
intervals from quantiles of the errors in units of them. Calibrations of earlier versions multiply
the standard deviation over rewirings by a factor, and take the quantiles of a Gaussian.

If errors are Gaussian with the predicted standard deviations, a fraction p of them lies within
±zₚ standard deviations, where zₚ is the Gaussian quantile of (1 + p) / 2. The fraction that does is
the coverage; the miscalibration area, between coverage and p, is 0 at best and 1/2 at worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from pydantic import Field, ValidationError
from torch import Tensor

from grass_gnn.config import Section, TaskConfig, TaskKind
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.files import read_json, write_json
from grass_gnn.tasks import TASKS, ProbabilityTask, Task
from grass_gnn.uncertainty.error_model import ErrorModel, half_width
from grass_gnn.uncertainty.neighbours import Nearness, Neighbours

LEVELS = np.linspace(0, 1, 201)  # confidence levels
BINS = 15  # of probabilities
_TEMPERATURES = (0.05, 20.0)  # bounded: perfect predictions would make it 0
_LEAST_STD = 1e-6  # of a probability; rewirings do not change the prediction of a single atom


def coverage(z: np.ndarray) -> np.ndarray:
    """The fraction of z-scores [M] within the interval of each confidence in :data:`LEVELS`."""
    from scipy.stats import norm

    inside = np.sort(np.abs(z))
    return np.searchsorted(inside, norm.ppf((1 + LEVELS) / 2), side="right") / len(z)


def miscalibration_area(z: np.ndarray) -> float:
    """The area between the coverage of z-scores [M] and the confidence."""
    from scipy.integrate import trapezoid

    return float(trapezoid(np.abs(coverage(z) - LEVELS), LEVELS))


def fit_scale(z: np.ndarray) -> float:
    """The factor of the standard deviations with the largest likelihood of the errors.

    The Gaussian log-likelihood −Σ (log s + z² / 2s²) is largest at s = √(mean of z²).
    """
    return float(np.sqrt(np.mean(np.square(z))))


def calibration_error(task: ProbabilityTask, probability: Tensor, target: Tensor) -> float:
    """Expected calibration error: |confidence − accuracy|, averaged over 15 bins.

    For classes the confidence is the probability of the most likely class; for labels (pooled) it
    is the probability that the label is true.

    Args:
        task: The task, which has classes or labels.
        probability: Probabilities of classes or labels [M, outputs].
        target: Classes [M], or labels [M, outputs], NaN where one is missing.
    """
    from torchmetrics.functional import classification as tm

    confidence, right = task.confidence(probability, target)
    return float(tm.binary_calibration_error(confidence, right.long(), BINS))


def with_temperature(task: Task | type[Task], probability: Tensor, temperature: float) -> Tensor:
    """Probabilities [M, outputs] whose logits are divided by a temperature."""
    return task.activate(task.inverse(probability.double()) / temperature).to(probability.dtype)


def fit_temperature(task: ProbabilityTask, probability: Tensor, target: Tensor) -> float:
    """The temperature with the lowest log loss; arguments as in :func:`calibration_error`."""
    from scipy.optimize import minimize_scalar

    exact = probability.double()
    low, high = np.log(_TEMPERATURES)
    found = minimize_scalar(
        lambda t: task.log_loss(with_temperature(task, exact, float(np.exp(t))), target),
        bounds=(low, high),
        method="bounded",
    )
    return float(np.exp(found.x))


def reliability(
    task: ProbabilityTask, probability: Tensor, target: Tensor, groups: int = 10
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean confidence, accuracy and its standard error, in groups of equal size."""
    confidence, right = task.confidence(probability, target)
    order = confidence.argsort(stable=True)
    parts = torch.tensor_split(torch.stack([confidence, right])[:, order].double(), groups, dim=1)
    means = torch.stack([part.mean(dim=1) for part in parts if part.size(1)]).numpy()
    count = np.array([part.size(1) for part in parts if part.size(1)])
    return means[:, 0], means[:, 1], np.sqrt(means[:, 1] * (1 - means[:, 1]) / count)


ALONE, TOGETHER = "calibration", "calibration_ensemble"  # .json and .png
NEIGHBOURS = {ALONE: "neighbours.safetensors", TOGETHER: "neighbours_ensemble.safetensors"}


class SpreadCalibration(Section):
    """Calibration of the standard deviations of one target of a regression."""

    target: str
    scale: float = Field(gt=0)  # √(mean of ((true − mean) / std)²), std over rewirings and models
    rows: int
    without_spread: int  # rows with zero std, which the scale ignores
    rank_correlation: float | None  # Spearman's ρ of that std and the absolute error
    area: float  # miscalibration area before calibration
    scaled_area: float
    within: tuple[float, float]  # fraction of errors within one and two std, before calibration
    scaled_within: tuple[float, float]
    errors: ErrorModel | None = None  # None in calibrations of earlier versions
    scores: list[float] = Field(default_factory=list)  # |error| / calibrated std, ascending
    calibrated_correlation: float | None = None  # Spearman's ρ of calibrated std and error

    def std(self, std: Tensor, rewirings: Tensor, near: Nearness | None, output: int) -> Tensor:
        """Calibrated standard deviations [M] of one output.

        Args:
            std: Standard deviations over rewirings and models [M].
            rewirings: The part of the rewirings [M].
            near: Comparison with the training set.
            output: Number of the output.
        """
        if self.errors is None:
            return self.scale * std
        spread = std if self.errors.between_models else rewirings
        return torch.from_numpy(self.errors.std(spread.double().numpy(), near, output))

    def half_width(self, coverage: float) -> float:
        """Half the width of an interval of this coverage, in calibrated standard deviations."""
        if self.scores:
            return half_width(self.scores, coverage)
        from scipy.stats import norm

        return float(norm.ppf((1 + coverage) / 2))


class ProbabilityCalibration(Section):
    """Calibration of the probabilities of a classification."""

    temperature: float = Field(gt=0)  # divides the logits
    rows: int
    error: float  # expected calibration error before scaling
    scaled_error: float
    log_loss: float
    scaled_log_loss: float


class NeighboursFile(Section):
    """The file of training graphs to compare with, next to the calibration."""

    model: str  # checksum of the weights of the model that represents the graphs
    sha256: str

    def load(self, folder: Path, models: Sequence[object]) -> Neighbours:
        """Read the file from the run folder of that model."""
        return Neighbours.load(folder / NEIGHBOURS[file_name(models)], self.sha256)


class Calibration(Section):
    """The calibration of a model or an ensemble."""

    kind: TaskKind
    models: list[str]  # checksums of the weights it applies to
    rewirings: int
    rows: int
    source: str  # where the rows come from
    targets: list[SpreadCalibration] = Field(default_factory=list)
    probabilities: ProbabilityCalibration | None = None
    neighbours: NeighboursFile | None = None

    def fits(self, task: TaskConfig) -> bool:
        """Whether it covers all outputs of a task."""
        if TASKS[self.kind].predicts_probabilities:
            known = self.probabilities is not None
        else:
            known = len(self.targets) == task.outputs
        return known and self.kind == task.kind

    def mean(self, mean: Tensor) -> Tensor:
        """Calibrated means or probabilities [M, outputs]."""
        if self.probabilities is None:
            return mean
        return with_temperature(TASKS[self.kind], mean, self.probabilities.temperature)

    def std(self, std: Tensor) -> Tensor:
        """Standard deviations over rewirings [M, outputs], scaled to the size of errors.

        Those of probabilities are unchanged. See :meth:`error_std` for ones that follow the error
        of each row.
        """
        return std * std.new_tensor([one.scale for one in self.targets]) if self.targets else std

    def error_std(self, std: Tensor, rewirings: Tensor, near: Nearness | None) -> Tensor:
        """Calibrated standard deviations [M, outputs]; see :meth:`SpreadCalibration.std`."""
        if not self.targets:
            return std.clamp(min=_LEAST_STD)
        columns = [
            one.std(std[:, number], rewirings[:, number], near, number).to(std.dtype)
            for number, one in enumerate(self.targets)
        ]
        return torch.stack(columns, dim=1)

    def half_widths(self, coverage: float) -> list[float]:
        """Half the width of each target's interval, in calibrated standard deviations."""
        return [one.half_width(coverage) for one in self.targets]

    @property
    def factors(self) -> str:
        """A short description of the calibration."""
        if self.probabilities is not None:
            return f"probabilities calibrated by temperature {self.probabilities.temperature:.3g}"
        if all(one.errors is not None for one in self.targets):
            return f"error bars calibrated on {self.rows:,} rows ({self.source})"
        shown = ", ".join(f"× {one.scale:.3g} for {one.target}" for one in self.targets[:3])
        more = f", … ({len(self.targets)} targets)" if len(self.targets) > 3 else ""
        return f"standard deviations calibrated: {shown}{more}"

    def save(self, folder: Path) -> Path:
        """Write the calibration to a run folder."""
        path = folder / f"{file_name(self.models)}.json"
        write_json(path, self.model_dump(mode="json"))
        return path


def checksums(models: Sequence[TrainedModel]) -> list[str]:
    """Checksums of the weights of models, sorted."""
    return sorted(str(model.card.get("weights_sha256")) for model in models)


def file_name(models: Sequence[object]) -> str:
    """Name of the calibration files of one model or several, without suffix."""
    return ALONE if len(models) == 1 else TOGETHER


def find_calibration(models: Sequence[TrainedModel]) -> tuple[Calibration | None, str]:
    """The calibration of exactly these models, stored in one of their run folders.

    Returns:
        The calibration, and why one that was found does not apply.
    """
    reason = ""
    for model in models:
        path = (model.folder or Path()) / f"{file_name(models)}.json"
        if model.folder is None or not path.is_file():
            continue
        try:
            found = Calibration.model_validate(read_json(path))
        except ValidationError:
            found = None
        if found is None or not found.fits(model.config.task):
            raise GrassError(f"The file {path} is damaged: calibrate again, or remove it.")
        if found.models == checksums(models):
            return found, ""
        reason = f"{path} belongs to other models and is not applied"
    return None, reason

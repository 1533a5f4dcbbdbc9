"""Calibration of predicted standard deviations and probabilities.

The standard deviation of an error is modelled as

    log σ(x) = a + Σᵢ wᵢ log cᵢ(x),    wᵢ ≥ 0,

where the indicators c are known beforehand: the spread of the predictions over rewirings and
models, the distance of the graph to the training set in the model's representation, how much its
prediction disagrees with the targets of its neighbours there, how well the model fits them, and,
for molecules, the dissimilarity of their fingerprints to those of the training set and the errors
of training molecules in the same leaves of the forest (out of bag). The weights are fitted to the
errors of rows that the model was not trained on, by the likelihood of a Laplace distribution, and
drawn towards :data:`PRIOR`, because there may be only a few dozen such rows.

The half-width of an interval is σ(x) times a quantile of |error| / σ over the same rows
(split-conformal prediction with normalised scores; Lei et al. 2018, section 5.2). So that no row
is judged by a fit to itself, its score comes from a model that was fitted to the others (ten
folds).

Calibrations of earlier versions multiply the standard deviation over rewirings by a factor, and
take the quantiles of a Gaussian.

If errors are Gaussian with the predicted standard deviations, a fraction p of them lies within
±zₚ standard deviations, where zₚ is the Gaussian quantile of (1 + p) / 2. The fraction that does is
the coverage; the miscalibration area, between coverage and p, is 0 at best and 1/2 at worst.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from pydantic import Field, ValidationError, model_validator
from torch import Tensor

from grass_gnn.config import Section, TaskConfig, TaskKind
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.stack import SavedModel, forest_checksum
from grass_gnn.evaluation.trained import TrainedModel
from grass_gnn.files import read_json, write_json
from grass_gnn.tasks import TASKS, ProbabilityTask, Task
from grass_gnn.uncertainty.neighbours import Nearness, Neighbours

# Weights of spread, distance, disagreement, residual and dissimilarity.
PRIOR = (0.1, 0.3, 0.3, 0.3, 0.5)
ONLY_SPREAD = (0.5,)  # the weight of the spread where there is nothing else
# With a forest, the spread includes that of trees, and says more. The last is the weight of the
# errors in the leaves of the forest. Chosen on inner splits of training and validation rows.
WITH_FOREST = (0.5, 0.5, 0.2, 0.1, 1.0, 0.3)
_STRENGTH = 10.0  # of the prior, in rows
_LARGEST = 2.0  # weight
# Added to the indicators, so that none of them makes a standard deviation zero. Spread,
# disagreement, residual and errors in leaves are in units of the standard deviation of the targets.
# Fingerprints of different molecules may be the same, so that of the dissimilarity is large.
_FLOORS = (0.01, 0.1, 0.05, 0.02, 0.3, 0.02)
_FOLDS = 10
_SMALLEST = 1e-6  # error, in the same unit
_MOST_SCORES = 1000


class ErrorModel(Section):
    """A fitted model of the size of errors of one target."""

    unit: float = Field(gt=0)  # standard deviation of the training targets
    intercept: float
    centers: list[float] = Field(min_length=1, max_length=len(WITH_FOREST))  # of the logarithms
    weights: list[float] = Field(min_length=1, max_length=len(WITH_FOREST))
    between_models: bool = True  # whether the spread is also that between models

    @model_validator(mode="after")
    def _one_weight_per_center(self) -> ErrorModel:
        if len(self.centers) != len(self.weights):
            raise ValueError("centers and weights differ in number")
        return self

    def std(self, spread: np.ndarray, near: Nearness | None, output: int) -> np.ndarray:
        """Standard deviations [M] of the errors of one output.

        Args:
            spread: Standard deviations of the predictions [M].
            near: Comparison with the training set.
            output: Number of the output.
        """
        indicators = indicator_table(spread, near, output, self.unit)
        count = min(indicators.shape[1], len(self.weights))  # what is not known counts as usual
        weights = np.array(self.weights[:count])
        logs = self.intercept + (indicators[:, :count] - self.centers[:count]) @ weights
        return self.unit * np.exp(np.clip(logs, -30, 30))


def indicator_table(
    spread: np.ndarray, near: Nearness | None, output: int, unit: float
) -> np.ndarray:
    """Logarithms of the indicators [M, 1 or 4 to 6]; arguments as for :meth:`ErrorModel.std`."""
    columns = [spread / unit]
    if near is not None:
        columns += [near.distance, near.disagreement[:, output] / unit]
        columns += [near.residual[:, output] / unit]
        columns += [] if near.dissimilarity is None else [near.dissimilarity]
        if near.dissimilarity is not None and near.leaf_error is not None:
            columns += [near.leaf_error[:, output] / unit]
    floors = _FLOORS[: len(columns)]
    pairs = zip(columns, floors, strict=True)
    return np.stack([np.log(np.maximum(column, 0) + floor) for column, floor in pairs], axis=1)


def fit_error_model(
    indicators: np.ndarray,
    error: np.ndarray,
    unit: float,
    between_models: bool = True,
    forest: bool = False,
) -> tuple[ErrorModel, np.ndarray]:
    """Fit a model to the errors of rows that were not trained on.

    Args:
        indicators: Of each row [M, 1 or 4 to 6]; see :func:`indicator_table`.
        error: Absolute errors [M].
        unit: Standard deviation of the training targets.
        between_models: Whether the spread is also that between models.
        forest: Whether the spread is also that of a forest.

    Returns:
        The model, scaled so that the mean of (error / σ)² is one, and the scores |error| / σ [M].
    """
    rows = len(error)
    size = np.maximum(error / unit, _SMALLEST)
    scores = np.empty(rows)
    fold = np.arange(rows) % min(_FOLDS, rows)
    for number in range(min(_FOLDS, rows)):
        own = fold == number
        centers, intercept, weights = _fit(indicators[~own], size[~own], forest)
        scores[own] = size[own] / np.exp(intercept + (indicators[own] - centers) @ weights)
    centers, intercept, weights = _fit(indicators, size, forest)
    scale = max(float(np.sqrt(np.mean(np.square(scores)))), _SMALLEST)
    model = ErrorModel(
        unit=unit,
        intercept=float(intercept + math.log(scale)),
        centers=centers.tolist(),
        weights=weights.tolist(),
        between_models=between_models,
    )
    return model, scores / scale


def _fit(
    indicators: np.ndarray, size: np.ndarray, forest: bool
) -> tuple[np.ndarray, float, np.ndarray]:
    """The most likely centers, intercept and weights, of errors [M] in units of the targets."""
    from scipy.optimize import minimize

    columns = indicators.shape[1]
    usual = WITH_FOREST if forest else PRIOR
    prior = np.array(usual[:columns] if columns > 1 else ONLY_SPREAD)
    centers = indicators.mean(axis=0)
    centred = indicators - centers

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        intercept, weights = parameters[0], parameters[1:]
        logs = intercept + centred @ weights
        ratio = size * np.exp(-logs)
        slope = np.concatenate(
            [[(1 - ratio).sum()], centred.T @ (1 - ratio) + 2 * _STRENGTH * (weights - prior)]
        )
        return float((logs + ratio).sum() + _STRENGTH * np.square(weights - prior).sum()), slope

    start = np.concatenate([[np.log(size.mean())], prior])
    bounds = [(None, None), *[(0.0, _LARGEST)] * len(prior)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return centers, float(found[0]), found[1:]


def kept_scores(scores: np.ndarray) -> list[float]:
    """Scores in ascending order; of many, evenly spaced quantiles."""
    ordered = np.sort(scores)
    if len(ordered) > _MOST_SCORES:
        places = np.linspace(0, len(ordered) - 1, _MOST_SCORES).round().astype(int)
        ordered = ordered[places]
    return [float(value) for value in ordered]


def half_width(scores: Sequence[float], coverage: float) -> float:
    """The score that a new one does not exceed with probability ``coverage``.

    Of n exchangeable scores this is the ⌈(n + 1) · coverage⌉-th smallest. Where there is none,
    because n is too small, the largest is extended by the tail of a Laplace distribution.

    Args:
        scores: Scores in ascending order, at least one.
        coverage: Between 0 and 1, exclusive.
    """
    place = math.ceil((len(scores) + 1) * coverage - 1e-9)
    if place <= len(scores):
        return max(scores[place - 1], _SMALLEST)
    return max(scores[-1], _SMALLEST) * math.log(1 - coverage) / math.log(1 / (len(scores) + 1))


LEVELS = np.linspace(0, 1, 201)  # confidence levels
BINS = 15  # of probabilities
_TEMPERATURES = (0.05, 20.0)  # bounds
_TEMPERATURE_STD = 0.5  # of the logarithm before anything is known: rarely more than a factor of 3
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
    """The most likely temperature; arguments as in :func:`calibration_error`.

    Its logarithm has a Gaussian prior around 0: a few rows that are all predicted right, as those
    without any positive are, would otherwise make all predictions certain.
    """
    from scipy.optimize import minimize_scalar

    exact, rows = probability.double(), len(target)

    def loss(t: float) -> float:
        likelihood = rows * task.log_loss(with_temperature(task, exact, float(np.exp(t))), target)
        return likelihood + (t / _TEMPERATURE_STD) ** 2 / 2

    low, high = np.log(_TEMPERATURES)
    return float(np.exp(minimize_scalar(loss, bounds=(low, high), method="bounded").x))


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
    def spread_alone(self) -> bool:
        """Whether error bars are multiples of the spread, as those of earlier versions are."""
        return any(one.errors is None for one in self.targets)

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


def checksums(models: Sequence[SavedModel]) -> list[str]:
    """Checksums of the weights of models, sorted; those of forests follow a plus sign."""
    return sorted(
        "+".join(filter(None, [str(model.card.get("weights_sha256")), forest_checksum(model)]))
        for model in models
    )


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

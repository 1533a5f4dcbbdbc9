"""How large the error of a prediction will be, and intervals that contain a stated share of errors.

The standard deviation of an error is modelled as

    log σ(x) = a + Σᵢ wᵢ log cᵢ(x),    wᵢ ≥ 0,

where the clues c are known beforehand: the spread of the predictions over rewirings and models, the
distance of the graph to the training set in the model's representation, how much its prediction
disagrees with the targets of its neighbours there, how well the model fits them, and, of
molecules, the dissimilarity of their fingerprints to those of the training set. The weights are
fitted to the errors of rows that the model was not trained on, by the likelihood of a Laplace
distribution, and drawn towards :data:`PRIOR`, because there may be only a few dozen such rows.

The half-width of an interval is σ(x) times a quantile of |error| / σ over the same rows
(split-conformal prediction with normalised scores; Lei et al. 2018, section 5.2). So that no row
is judged by a fit to itself, its score comes from a model that was fitted to the others (ten
folds).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field, model_validator

from grass_gnn.config import Section
from grass_gnn.uncertainty.neighbours import Nearness

# Weights of spread, distance, disagreement, residual and dissimilarity.
PRIOR = (0.1, 0.3, 0.3, 0.3, 0.5)
ONLY_SPREAD = (0.5,)  # the weight of the spread where there is nothing else
_STRENGTH = 10.0  # of the prior, in rows
_LARGEST = 2.0  # weight
# Added to the clues, so that none of them makes a standard deviation zero. Spread, disagreement and
# residual are in units of the standard deviation of the targets. Fingerprints of different
# molecules may be the same, so the last is large.
_FLOORS = (0.01, 0.1, 0.05, 0.02, 0.3)
_FOLDS = 10
_SMALLEST = 1e-6  # error, in the same unit
_MOST_SCORES = 1000


class ErrorModel(Section):
    """A fitted model of the size of errors of one target."""

    unit: float = Field(gt=0)  # standard deviation of the training targets
    intercept: float
    centers: list[float] = Field(min_length=1, max_length=len(PRIOR))  # of the logarithms
    weights: list[float] = Field(min_length=1, max_length=len(PRIOR))
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
        clues = clue_table(spread, near, output, self.unit)
        count = min(clues.shape[1], len(self.weights))  # what is not known counts as usual
        weights = np.array(self.weights[:count])
        logs = self.intercept + (clues[:, :count] - self.centers[:count]) @ weights
        return self.unit * np.exp(np.clip(logs, -30, 30))


def clue_table(spread: np.ndarray, near: Nearness | None, output: int, unit: float) -> np.ndarray:
    """Logarithms of the clues [M, 1, 4 or 5]; arguments as for :meth:`ErrorModel.std`."""
    columns = [spread / unit]
    if near is not None:
        columns += [near.distance, near.disagreement[:, output] / unit]
        columns += [near.residual[:, output] / unit]
        columns += [] if near.dissimilarity is None else [near.dissimilarity]
    floors = _FLOORS[: len(columns)]
    pairs = zip(columns, floors, strict=True)
    return np.stack([np.log(np.maximum(column, 0) + floor) for column, floor in pairs], axis=1)


def fit_error_model(
    clues: np.ndarray, error: np.ndarray, unit: float, between_models: bool = True
) -> tuple[ErrorModel, np.ndarray]:
    """Fit a model to the errors of rows that were not trained on.

    Args:
        clues: Of each row [M, 1, 4 or 5]; see :func:`clue_table`.
        error: Absolute errors [M].
        unit: Standard deviation of the training targets.
        between_models: Whether the spread is also that between models.

    Returns:
        The model, scaled so that the mean of (error / σ)² is one, and the scores |error| / σ [M].
    """
    rows = len(error)
    size = np.maximum(error / unit, _SMALLEST)
    scores = np.empty(rows)
    fold = np.arange(rows) % min(_FOLDS, rows)
    for number in range(min(_FOLDS, rows)):
        own = fold == number
        centers, intercept, weights = _fit(clues[~own], size[~own])
        scores[own] = size[own] / np.exp(intercept + (clues[own] - centers) @ weights)
    centers, intercept, weights = _fit(clues, size)
    scale = max(float(np.sqrt(np.mean(np.square(scores)))), _SMALLEST)
    model = ErrorModel(
        unit=unit,
        intercept=float(intercept + math.log(scale)),
        centers=centers.tolist(),
        weights=weights.tolist(),
        between_models=between_models,
    )
    return model, scores / scale


def _fit(clues: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """The most likely centers, intercept and weights, of errors [M] in units of the targets."""
    from scipy.optimize import minimize

    columns = clues.shape[1]
    prior = np.array(PRIOR[:columns] if columns > 1 else ONLY_SPREAD)
    centers = clues.mean(axis=0)
    centred = clues - centers

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

"""A Gaussian process on fingerprints and descriptors, one of the models that a run averages.

With few molecules, a Gaussian process is often the best model of all, and it takes seconds. For
two molecules with descriptors u and Morgan counts c, its covariance is

    k = s₁ (1 + √3 r) exp(−√3 r) + s₂ Σ min(c, c′) / Σ max(c, c′),   r = |u − u′| / ℓ,

a Matérn kernel of descriptors and the Tanimoto kernel of counts. The variances s₁ and s₂, the
length ℓ and the noise maximise the marginal likelihood of (at most a thousand) training rows.

Rows are ordered: first those that a network is trained on, then its validation rows. The Cholesky
factor of all rows begins with that of the training rows, so that one factorisation gives both the
process that predicts new molecules and the predictions of the validation rows by the training rows
alone. Labels and classes are regressed like numbers, one process for each, and a logistic function
turns the result into a probability. The factor also contains the prediction of each row by those
before it, to which this function and the share of the process in an average with others are fitted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.sparse import csr_array
from torch import Tensor

from grass_gnn.data.tables.descriptors import MORGAN_COUNTS, fill_columns, useful_columns
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import Prediction
from grass_gnn.files import select_arrays
from grass_gnn.progress import report_progress
from grass_gnn.tasks import Task

MOST_ROWS = 4_000  # that a process is fitted to; memory grows with their square
MOST_OUTPUTS = 32
_FEWEST = 10  # rows with a known target
_TUNING_ROWS, _TUNING_ROWS_OF_SEVERAL = 1_000, 500  # for one and for several targets
_LIMIT = 5.0  # standard deviations at which descriptors are clipped
_CHUNK = 512  # rows that are predicted together
_JITTER = 1e-6
_PARAMETERS = 4  # log s₁, log 1/ℓ², log s₂, log noise, of targets with variance one
_START = (0.0, 0.0, 0.0, -2.0)
_WIDEST = 20.0  # largest absolute value of a parameter, in a file

# Type and number of dimensions of each array in the file.
ARRAYS = {
    "columns": (np.int32, 1),
    "median": (np.float32, 1),
    "center": (np.float32, 1),
    "scale": (np.float32, 1),
    "inputs": (np.float32, 2),
    "count_start": (np.int32, 1),
    "count_place": (np.int32, 1),
    "weights": (np.float64, 2),
    "known": (np.bool_, 2),
    "kernel": (np.float64, 2),
    "output": (np.float64, 2),
}


@dataclass(frozen=True)
class GaussianProcess:
    """Processes of all outputs over the same n molecules, as arrays."""

    columns: np.ndarray  # [inputs] which of the columns after the Morgan counts are inputs
    median: np.ndarray  # [inputs] values of columns that are not defined for a molecule
    center: np.ndarray  # [inputs] mean of ± log(1 + |column|)
    scale: np.ndarray  # [inputs] its standard deviation
    inputs: np.ndarray  # [n, inputs] scaled and clipped
    count_start: np.ndarray  # [n + 1] where the counts of each molecule begin
    count_place: np.ndarray  # [total of all counts] level · 2048 + environment; see ``_unary``
    weights: np.ndarray  # [n, outputs] K⁻¹ y; zero where a target is missing
    known: np.ndarray  # [n, outputs] whether a row has the target
    kernel: np.ndarray  # [outputs, 4]
    output: np.ndarray  # [outputs, 4] mean and std of the targets, slope and offset of the logit

    def predict(self, columns: np.ndarray, task: Task) -> Prediction:
        """Mean and standard deviation [M, outputs] from all columns of molecules [M, columns].

        NaN for outputs without a process. Probabilities have no standard deviation.
        """
        parts = [columns[first : first + _CHUNK] for first in range(0, len(columns), _CHUNK)]
        found = [self._predict(part, task) for part in parts]
        mean, std = (torch.cat(part) for part in zip(*found, strict=True))
        return Prediction(mean, std)

    def _predict(self, columns: np.ndarray, task: Task) -> tuple[Tensor, Tensor]:
        given = columns[:, MORGAN_COUNTS:]
        inputs = _scaled(given, self.columns, self.median, self.center, self.scale)
        distance = _distances(inputs, self.inputs)  # [M, n]
        similarity = _tanimoto(_unary(columns[:, :MORGAN_COUNTS]), self._counts)
        mean = torch.full((len(columns), len(self.kernel)), math.nan, dtype=torch.float64)
        std = mean.clone()
        for place in self.fitted:
            parameters, own = torch.from_numpy(self.kernel[place]), self._rows(place)
            covariance = _covariance(parameters, distance[:, own], similarity[:, own])
            weights = torch.from_numpy(self.weights[:, place])[own]
            value = covariance @ weights  # [M]
            shift, scale, slope, offset = self.output[place]
            if task.predicts_probabilities:
                mean[:, place] = torch.sigmoid(slope * value + offset)
                std[:, place] = 0.0
                continue
            explained = torch.linalg.solve_triangular(
                self._factors[place], covariance.T.float(), upper=False
            )
            prior = parameters[0].exp() + parameters[2].exp() + parameters[3].exp()
            variance = prior - explained.double().square().sum(dim=0)
            mean[:, place] = value * scale + shift
            std[:, place] = variance.clamp(min=_JITTER).sqrt() * scale
        return (_normalised(mean, task), std)

    @property
    def fitted(self) -> list[int]:
        """The outputs that have a process."""
        return np.flatnonzero(self.known.any(axis=0)).tolist()

    def _rows(self, place: int) -> Tensor:
        return torch.from_numpy(np.flatnonzero(self.known[:, place]))

    @cached_property
    def _counts(self) -> csr_array:
        width = int(self.count_place.max(initial=0)) + 1
        ones = np.ones(len(self.count_place), dtype=np.float32)
        shape = (len(self.inputs), width)
        return csr_array((ones, self.count_place, self.count_start), shape=shape)

    @cached_property
    def _factors(self) -> dict[int, Tensor]:
        """Cholesky factors in float32, for standard deviations; the file would be large with them.

        Raises:
            GrassError: A covariance of the file is not positive definite.
        """
        distance, similarity = _distances(self.inputs), _tanimoto(self._counts)
        found = {}
        for place in self.fitted:
            own = self._rows(place)
            parameters = torch.from_numpy(self.kernel[place])
            try:
                found[place] = _factor(parameters, *_among(own, distance, similarity)).float()
            except torch.linalg.LinAlgError:
                raise GrassError("The Gaussian process of the run is damaged.") from None
        return found

    def check(self, outputs: int) -> bool:
        """Whether the arrays of a file fit together."""
        rows, width = self.inputs.shape
        starts, places = self.count_start, self.count_place
        return bool(
            rows <= MOST_ROWS
            and outputs <= MOST_OUTPUTS
            and len(self.columns) == len(self.median) == len(self.center) == len(self.scale)
            and len(self.columns) == width
            and self.weights.shape == self.known.shape == (rows, outputs)
            and self.kernel.shape == self.output.shape == (outputs, _PARAMETERS)
            and (self.columns >= 0).all()
            and all(np.isfinite(one).all() for one in (self.median, self.center, self.inputs))
            and all(np.isfinite(one).all() for one in (self.weights, self.kernel, self.output))
            and (np.isfinite(self.scale) & (self.scale > 0)).all()
            and (np.abs(self.inputs) <= _LIMIT).all()
            and (np.abs(self.kernel) <= _WIDEST).all()
            and len(starts) == rows + 1
            and starts[0] == 0
            and starts[-1] == len(places)
            and (np.diff(starts) >= 0).all()
            and ((places >= 0) & (places < 256 * MORGAN_COUNTS)).all()
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays, for a file."""
        return {name: getattr(self, name) for name in ARRAYS}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], outputs: int) -> GaussianProcess:
        """From the arrays of a file.

        Raises:
            LookupError: An array is missing.
            ValueError: The arrays do not fit together.
        """
        found = cls(**select_arrays(arrays, ARRAYS))
        if not found.check(outputs):
            raise ValueError("the parts of the Gaussian process do not fit together")
        return found


def fit_process(
    columns: np.ndarray, targets: np.ndarray, held: int, task: Task
) -> tuple[GaussianProcess, Prediction]:
    """Fit a process for each output.

    Args:
        columns: All columns of the molecules [n, columns]; in random order, but for the last rows.
        targets: Targets [n, target_columns], NaN where one is missing.
        held: Number of rows, the last ones, that are also to be predicted by the others.
        task: The task.

    Returns:
        The processes, fitted to all rows, and predictions of the rows [n, outputs] without their
        targets: of the last rows by all others, and of each other row in the second half of those
        by the rows before it; NaN elsewhere.
    """
    rows, first = len(columns), len(columns) - held
    own = columns[:first, MORGAN_COUNTS:]
    chosen, median = useful_columns(own)
    logs = _logarithms(fill_columns(own, chosen, median))
    center, scale = logs.mean(axis=0), logs.std(axis=0)
    chosen, median, center, scale = (one[scale > 1e-8] for one in (chosen, median, center, scale))
    inputs = _scaled(columns[:, MORGAN_COUNTS:], chosen, median, center, scale)
    counts = _unary(columns[:, :MORGAN_COUNTS])
    distance, similarity = _distances(inputs), _tanimoto(counts)  # [n, n]

    truth = np.eye(task.classes)[targets[:, 0].astype(int)] if task.classes else targets
    outputs = truth.shape[1]
    most = _TUNING_ROWS if outputs == 1 else _TUNING_ROWS_OF_SEVERAL
    known = np.zeros((rows, outputs), dtype=bool)
    weights = np.zeros((rows, outputs))
    kernel, output = np.zeros((2, outputs, _PARAMETERS))
    mean, std = torch.full((2, rows, outputs), math.nan, dtype=torch.float64)
    for place in range(outputs):
        report_progress("Fitting the Gaussian process", place + 1, outputs)
        at = torch.from_numpy(np.flatnonzero(~np.isnan(truth[:, place])))
        y = torch.from_numpy(truth[at.numpy(), place])
        trained = int((at < first).sum())
        found = _fit_output(y, trained, _among(at, distance, similarity), most, task)
        if found is None:
            continue
        late = at[trained // 2 :]
        mean[late, place], std[late, place] = found.mean, found.std
        known[at.numpy(), place] = True
        weights[at.numpy(), place] = found.weights.numpy()
        kernel[place], output[place] = found.parameters.numpy(), found.output
    process = GaussianProcess(
        columns=chosen,
        median=median,
        center=center,
        scale=scale,
        inputs=inputs,
        count_start=counts.indptr.astype(np.int32),
        count_place=counts.indices.astype(np.int32),
        weights=weights,
        known=known,
        kernel=kernel,
        output=output,
    )
    return process, Prediction(_normalised(mean, task), std)


class _FittedOutput(NamedTuple):
    """The process of one output over the n rows where its target is known."""

    weights: Tensor  # [n] of the rows in a prediction
    parameters: Tensor  # of the kernel
    output: tuple[float, ...]  # mean and std of the targets, slope and offset of the logit
    mean: Tensor  # [n − trained // 2] of the second half of the training rows and of all others
    std: Tensor  # of the same rows


def _fit_output(
    y: Tensor, trained: int, parts: Sequence[Tensor], most: int, task: Task
) -> _FittedOutput | None:
    """Fit the process of one output, unless there are too few rows or all targets are equal.

    Args:
        y: Targets [n].
        trained: Number of training rows, which come first.
        parts: Distances and similarities of the rows [n, n].
        most: Number of rows to tune the kernel on.
        task: The task.
    """
    if trained < _FEWEST:
        return None
    shift, spread = float(y[:trained].mean()), float(y[:trained].std(correction=0))
    if not spread > 1e-12 * abs(shift):
        return None
    y = (y - shift) / spread
    some = slice(0, min(trained, most))
    parameters = _tune(parts[0][some, some], parts[1][some, some], y[some])
    factor = _factor(parameters, *parts)
    solved = torch.linalg.solve_triangular(factor, y[:, None], upper=False)  # L⁻¹ y
    alpha = torch.linalg.solve_triangular(factor.T, solved, upper=True)
    # Each row predicted by those before it; below the training rows, by these alone.
    value, variance = y - factor.diagonal() * solved[:, 0], factor.diagonal().square()
    value[trained:] = (factor[trained:, :trained] @ solved[:trained])[:, 0]
    variance[trained:] = factor[trained:, trained:].square().sum(dim=1)
    value, variance, late = value[trained // 2 :], variance[trained // 2 :], y[trained // 2 :]
    if not task.predicts_probabilities:
        mean, std = value * spread + shift, variance.sqrt() * spread
        return _FittedOutput(alpha[:, 0], parameters, (shift, spread, 1.0, 0.0), mean, std)
    slope, offset = _logistic(value.numpy(), (late > y.min()).numpy())
    mean = torch.sigmoid(slope * value + offset)
    scales = shift, spread, slope, offset
    return _FittedOutput(alpha[:, 0], parameters, scales, mean, torch.zeros_like(mean))


# --- Inputs and covariances ----------------------------------------------------------------------


def _scaled(
    columns: np.ndarray,
    chosen: np.ndarray,
    median: np.ndarray,
    center: np.ndarray,
    scale: np.ndarray,
) -> np.ndarray:
    """Some of all columns [M, columns], of similar size and without outliers [M, inputs]."""
    logs = _logarithms(fill_columns(columns, chosen, median))
    return np.clip((logs - center) / scale, -_LIMIT, _LIMIT).astype(np.float32)


def _logarithms(values: np.ndarray) -> np.ndarray:
    """Large values count less than proportionally."""
    found: np.ndarray = np.sign(values) * np.log1p(np.abs(values))
    return found.astype(np.float32)


def _distances(rows: np.ndarray, others: np.ndarray | None = None) -> Tensor:
    """Squared distances [M, n], per column."""
    own = torch.from_numpy(rows).double()
    other = own if others is None else torch.from_numpy(others).double()
    return torch.cdist(own, other).square() / max(rows.shape[1], 1)


def _unary(counts: np.ndarray) -> csr_array:
    """Counts [M, 2048] as ones [M, levels · 2048]: a count of 3 is a one in each of three levels.

    The sum of the smaller counts of two molecules is then a product of their rows.
    """
    found = np.nan_to_num(counts).astype(np.int64)
    row, place = np.nonzero(found)
    times = found[row, place]
    level = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    at = (np.repeat(row, times), level * MORGAN_COUNTS + np.repeat(place, times))
    ones = np.ones(len(level), dtype=np.float32)
    width = (int(found.max(initial=0)) + 1) * MORGAN_COUNTS
    return csr_array((ones, at), shape=(len(counts), width))


def _tanimoto(rows: csr_array, others: csr_array | None = None) -> Tensor:
    """Σ min / Σ max of the counts of molecules [M, n]; zero for two molecules without any."""
    others = rows if others is None else others
    width = max(rows.shape[1], others.shape[1])
    rows, others = (
        csr_array((one.data, one.indices, one.indptr), shape=(one.shape[0], width))
        for one in (rows, others)
    )
    shared = (rows @ others.T).toarray().astype(np.float64)
    total = rows.sum(axis=1)[:, None] + others.sum(axis=1)[None, :] - shared
    return torch.from_numpy(shared / np.maximum(total, 1.0))


def _among(rows: Tensor, *matrices: Tensor) -> list[Tensor]:
    """The part of matrices [n, n] that belongs to some of the rows."""
    return [one if len(rows) == len(one) else one[rows[:, None], rows] for one in matrices]


def _kernels(parameters: Tensor, distance: Tensor, similarity: Tensor) -> list[Tensor]:
    """Matérn and Tanimoto kernel of molecules, and the slope of the first in its inverse length."""
    scaled = 3 * distance * parameters[1].exp()
    r = (scaled + 3e-12).sqrt()
    decay = parameters[0].exp() * torch.exp(-r)
    return [(1 + r) * decay, parameters[2].exp() * similarity, -0.5 * scaled * decay]


def _covariance(parameters: Tensor, distance: Tensor, similarity: Tensor) -> Tensor:
    """The covariance of molecules, without noise; targets have a variance of about one."""
    matern, tanimoto, _ = _kernels(parameters, distance, similarity)
    return matern + tanimoto


def _factor(parameters: Tensor, distance: Tensor, similarity: Tensor) -> Tensor:
    """The Cholesky factor of the covariance with noise [n, n]."""
    return _noisy_factor(parameters, _covariance(parameters, distance, similarity))


def _noisy_factor(parameters: Tensor, covariance: Tensor) -> Tensor:
    """The Cholesky factor of a covariance [n, n], to which noise is added in place."""
    covariance.diagonal().add_(parameters[3].exp() + _JITTER)
    return torch.linalg.cholesky(covariance)


def _likelihood(
    parameters: Tensor, distance: Tensor, similarity: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Negative logarithm of likelihood and prior of y [n], but for a constant, and its gradient.

    The gradient of the likelihood is tr((K⁻¹ − α αᵀ) ∂K) / 2 with α = K⁻¹ y (Rasmussen and
    Williams, *Gaussian Processes for Machine Learning*, equation 5.9). Autograd takes twice as
    long.
    """
    matern, tanimoto, slope = _kernels(parameters, distance, similarity)
    factor = _noisy_factor(parameters, matern + tanimoto)  # [n, n]
    alpha = torch.cholesky_solve(y[:, None], factor)  # [n, 1]
    value = y @ alpha[:, 0] / 2 + factor.diagonal().log().sum()
    inner = torch.cholesky_inverse(factor) - alpha @ alpha.T
    traces = [(inner * part).sum() for part in (matern, slope, tanimoto)]
    traces.append(inner.diagonal().sum() * parameters[3].exp())
    gradient = torch.stack(traces) / 2 + 0.1 * parameters
    return value + 0.05 * parameters.square().sum(), gradient


def _tune(distance: Tensor, similarity: Tensor, y: Tensor) -> Tensor:
    """The parameters that maximise the marginal likelihood of y [n], with a weak prior."""

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        found, gradient = _likelihood(torch.from_numpy(values), distance, similarity, y.double())
        return found.item(), gradient.numpy()

    bounds = [(-8.0, 8.0)] * _PARAMETERS
    found: Any = minimize(
        loss, _START, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 30}
    )
    return torch.from_numpy(found.x)


def _logistic(value: np.ndarray, true: np.ndarray) -> tuple[float, float]:
    """Slope and offset of the logit that maximise the likelihood of labels, with a weak prior."""

    start = np.array([1.0, 0.0])

    def loss(line: np.ndarray) -> tuple[float, np.ndarray]:
        logit, away = line[0] * value + line[1], line - start
        error = 1 / (1 + np.exp(-logit)) - true
        size = np.logaddexp(0, logit).sum() - logit[true].sum() + np.square(away).sum() / 2
        return size, np.array([error @ value, error.sum()]) + away

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, 20), (-20, 20)])
    return float(found.x[0]), float(found.x[1])


def _normalised(mean: Tensor, task: Task) -> Tensor:
    """Probabilities of classes that add up to one; zero for classes without a process."""
    return mean.nan_to_num(0.0) / mean.nansum(dim=1, keepdim=True) if task.classes else mean

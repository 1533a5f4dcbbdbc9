"""How far predicted standard deviations and probabilities can be trusted, and what mends them.

Errors that are Gaussian with the predicted standard deviations lie within ±zₚ of them with
probability p, where zₚ is the Gaussian quantile of (1 + p) / 2. The share that really does is the
coverage; the area between coverage and p is 0 when every p is right, and 1/2 at worst.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.integrate import trapezoid
from scipy.optimize import minimize_scalar
from scipy.stats import norm, spearmanr
from torch import Tensor
from torch.nn import functional as F
from torchmetrics.functional import classification as tm

LEVELS = np.linspace(0, 1, 201)  # confidence, from none to all
BINS = 15  # of probabilities
_TEMPERATURES = (0.05, 20.0)  # labels that are all foretold right would ask for 0


def rank_correlation(spread: Tensor, error: Tensor) -> float | None:
    """Spearman's ρ of predicted spread and absolute error, its mean over targets.

    Args:
        spread: Standard deviations [M, outputs].
        error: Absolute errors [M, outputs], NaN where the target is missing.

    Returns:
        None where either is the same for all.
    """
    found = []
    for s, e in zip(spread.double().T.numpy(), error.double().T.numpy(), strict=True):
        known = ~np.isnan(e)
        s, e = s[known], e[known]
        if len(s) > 1 and np.ptp(s) > 0 and np.ptp(e) > 0:
            found.append(float(spearmanr(s, e)[0]))
    return sum(found) / len(found) if found else None


def coverage(z: np.ndarray) -> np.ndarray:
    """The share of z-scores [M] within the interval of each confidence in :data:`LEVELS`."""
    inside = np.sort(np.abs(z))
    return np.searchsorted(inside, norm.ppf((1 + LEVELS) / 2), side="right") / len(z)


def miscalibration_area(z: np.ndarray) -> float:
    """The area between the coverage of z-scores [M] and the confidence."""
    return float(trapezoid(np.abs(coverage(z) - LEVELS), LEVELS))


def fit_scale(z: np.ndarray) -> float:
    """The factor of the standard deviations that makes the errors likeliest.

    The Gaussian log-likelihood −Σ (log s + z² / 2s²) is largest at s = √(mean of z²).
    """
    return float(np.sqrt(np.mean(np.square(z))))


def calibration_error(kind: str, probability: Tensor, target: Tensor) -> float:
    """Expected calibration error: |confidence − share that is right|, a mean over 15 bins.

    Of classes, the confidence is that of the likeliest; of labels (all of them together), the
    probability that the label is there.

    Args:
        kind: Of the task.
        probability: Of classes or labels [M, outputs].
        target: Classes [M], or labels [M, outputs] in which NaN means missing.
    """
    if kind == "classification":
        classes = probability.size(1)
        return float(tm.multiclass_calibration_error(probability, target.long(), classes, BINS))
    known = ~torch.isnan(target)
    return float(tm.binary_calibration_error(probability[known], target[known].long(), BINS))


def with_temperature(kind: str, probability: Tensor, temperature: float) -> Tensor:
    """Probabilities [M, outputs] whose logits are divided by a temperature."""
    exact = probability.double()
    if kind == "classification":
        changed = (exact.clamp(min=1e-30).log() / temperature).softmax(dim=-1)
    else:
        changed = (exact.logit(eps=1e-12) / temperature).sigmoid()
    return changed.to(probability.dtype)


def log_loss(kind: str, probability: Tensor, target: Tensor) -> float:
    """Negative log-likelihood of what is true, a mean; arguments as in calibration_error."""
    exact = probability.double().clamp(1e-12, 1 - 1e-12)
    if kind == "classification":
        return float(F.nll_loss(exact.log(), target.long()))
    known = ~torch.isnan(target)
    return float(F.binary_cross_entropy(exact[known], target[known].double()))


def fit_temperature(kind: str, probability: Tensor, target: Tensor) -> float:
    """The temperature that makes what is true likeliest; arguments as in calibration_error."""
    exact = probability.double()
    low, high = np.log(_TEMPERATURES)
    found = minimize_scalar(
        lambda t: log_loss(kind, with_temperature(kind, exact, float(np.exp(t))), target),
        bounds=(low, high),
        method="bounded",
    )
    return float(np.exp(found.x))


def reliability(
    kind: str, probability: Tensor, target: Tensor, groups: int = 10
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean confidence, share that is right and its standard error, of groups of equal size."""
    if kind == "classification":
        confidence, best = probability.max(dim=1)
        right = best == target
    else:
        known = ~torch.isnan(target)
        confidence, right = probability[known], target[known] == 1
    order = confidence.argsort(stable=True)
    parts = torch.tensor_split(torch.stack([confidence, right])[:, order].double(), groups, dim=1)
    means = torch.stack([part.mean(dim=1) for part in parts if part.size(1)]).numpy()
    count = np.array([part.size(1) for part in parts if part.size(1)])
    return means[:, 0], means[:, 1], np.sqrt(means[:, 1] * (1 - means[:, 1]) / count)

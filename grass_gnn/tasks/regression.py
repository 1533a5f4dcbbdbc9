"""Regression: losses and metrics of numbers, in units that the model can learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from grass_gnn.config import TaskConfig
from grass_gnn.tasks.base import AddUp, Task, alone, known_targets, mean_of
from grass_gnn.tasks.metrics import rank_correlation

TAIL = (1.0, 5.0)
"""Errors, in standard deviations, to which the loss l1+tail gives more weight: those of rare
structures. Larger ones may be wrong targets."""

CONSTANT = 1e-12
"""Standard deviation of a constant target, relative to its size."""
TINY = 1e-4
"""Standard deviation below which targets are rescaled: optimisers with a fixed step and trees with
a least variance take such differences for rounding."""
_ROUNDING = 1e-6  # of targets and predictions in single precision, relative to their size


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
        scale = torch.where(spread > CONSTANT * size, spread, 1.0)
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
        tiny = min(self.config.target_scale) < TINY
        if len(self.config.target_scale) > 1 or tail or tiny:
            scale = self._scale_like(prediction)
            prediction, target = prediction / scale, target / scale
        prediction, target, weight = known_targets(prediction, target)
        error = F.mse_loss if self.config.loss == "mse" else F.l1_loss
        total = error(prediction, target, reduction="sum")
        if tail:
            near, far = TAIL
            excess = ((prediction - target).abs() - near).clamp(0, far - near)
            total = total + excess.square().sum()
        return mean_of(total, add_up(weight.sum()))

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
            values = torch.where(total <= rounding, exact, 1 - residual / total)
            return float(values[count > 1].mean())  # NaN if no target has two known values
        error = (prediction - target)[known]
        return float(error.abs().mean() if metric == "mae" else error.square().mean().sqrt())

    def spread_correlation(self, mean: Tensor, std: Tensor, target: Tensor) -> float | None:
        """See :func:`rank_correlation`."""
        return rank_correlation(std, (mean - target.view_as(mean)).abs())

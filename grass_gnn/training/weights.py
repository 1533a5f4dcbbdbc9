"""Copies of the weights: their moving average, and those with the best validation score."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from grass_gnn.tasks import LOWER_IS_BETTER


class WeightAverage:
    """Moving average of the trainable weights, in float32.

    The first 1 / (1 − decay) steps are averaged with equal weight, so that the initial weights
    fade; from then on the average is exponential: a ← decay · a + (1 − decay) · w.

    Args:
        model: The model whose weights are averaged.
        decay: Between 0 and 1, such as 0.999.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.weights = {
            name: parameter.detach().float().clone()
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Add the weights after an optimiser step to the average."""
        self.steps += 1
        share = max(1 - self.decay, 1 / self.steps)
        own = dict(model.named_parameters())
        for name, average in self.weights.items():
            average.lerp_(own[name].detach().float(), share)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Temporarily load the averaged weights into the model."""
        current = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.copy_to(model)
        try:
            yield
        finally:
            _assign(model, current)

    def copy_to(self, model: nn.Module) -> None:
        """Copy the averaged weights to the model."""
        if self.steps:
            _assign(model, self.weights)

    def to(self, device: torch.device) -> None:
        """Move the average to the device of the model."""
        self.weights = {name: value.to(device) for name, value in self.weights.items()}

    def state_dict(self) -> dict[str, Any]:
        """The average and the number of steps in it, for a checkpoint."""
        return {"steps": self.steps, "weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        self.steps, self.weights = state["steps"], state["weights"]


@torch.no_grad()
def _assign(model: nn.Module, weights: dict[str, Tensor]) -> None:
    own = dict(model.named_parameters())
    for name, value in weights.items():
        own[name].copy_(value)


class BestWeights:
    """Early stopping: the weights of the best validation score so far.

    Args:
        metric: Name of the metric.
        patience: Number of validations without improvement after which training stops.
    """

    def __init__(self, metric: str, patience: int) -> None:
        self.patience = patience
        self.sign = 1.0 if metric in LOWER_IS_BETTER else -1.0
        self.best, self.epoch, self.waited = math.inf, 0, 0
        self.weights: dict[str, Tensor] = {}

    @property
    def exhausted(self) -> bool:
        """Whether training should stop."""
        return self.waited >= self.patience

    def update(self, model: nn.Module, epoch: int, metric: float | None) -> None:
        """Compare the score of an epoch with the best one; None or NaN: there is no score."""
        if metric is None or math.isnan(metric):
            return
        # Among equal scores, keep the later one: a few graphs may be ranked correctly by weights
        # that are hardly trained.
        if self.sign * metric <= self.best:
            self.best, self.epoch, self.waited = self.sign * metric, epoch, 0
            self.weights = {n: v.detach().clone() for n, v in model.state_dict().items()}
        else:
            self.waited += 1

    def copy_to(self, model: nn.Module) -> None:
        """Copy the best weights to the model, if there was a validation score."""
        if self.weights:
            model.load_state_dict(self.weights)

    def state_dict(self) -> dict[str, Any]:
        """The best score, when it was reached, and its weights, for a checkpoint."""
        return {
            "best": self.best,
            "epoch": self.epoch,
            "waited": self.waited,
            "weights": self.weights,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        self.best, self.epoch = state["best"], state["epoch"]
        self.waited, self.weights = state["waited"], state["weights"]

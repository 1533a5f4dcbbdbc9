"""GRASS and baselines on the same data for the same minutes, at the same size."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from grass_gnn.config import GRASSConfig
from grass_gnn.data import PreparedData
from grass_gnn.training import Run, make_model, train


def count_parameters(config: GRASSConfig) -> int:
    """Number of trainable parameters."""
    with torch.device("meta"):  # shapes alone
        return sum(p.numel() for p in make_model(config).parameters())


def same_size(config: GRASSConfig, architecture: str, **changes: Any) -> GRASSConfig:
    """A baseline with about as many parameters as ``config``: its width is chosen to fit.

    Args:
        config: What to match.
        architecture: Name of the baseline.
        changes: Further settings, by dotted name.
    """
    goal = count_parameters(config)
    baseline = config.override({"model.architecture": architecture, **changes})

    def excess(dim: int) -> int:
        return count_parameters(baseline.override({"model.dim": dim})) - goal

    dim = 4  # in steps of four, which the attention heads divide
    while excess(dim + 4) <= 0:
        dim += 4
    return baseline.override({"model.dim": min((dim, dim + 4), key=lambda d: abs(excess(d)))})


def epochs_within(
    config: GRASSConfig, data: PreparedData, folder: Path, seconds: float, seed: int = 0
) -> int:
    """Number of epochs that take about so many seconds, from one that is timed."""
    trial = folder.with_name(folder.name + "-trial")
    shutil.rmtree(trial, ignore_errors=True)
    once = config.override(
        {
            "training.epochs": 1,
            "evaluation.statistics_passes": 0,
            "evaluation.rewirings": 1,
        }
    )
    each = train(once, data, trial, seed).results["training"]["seconds"]
    shutil.rmtree(trial)
    return max(1, round(seconds / each))


def train_for(
    config: GRASSConfig, data: PreparedData, folder: Path, seconds: float, seed: int = 0
) -> Run:
    """Train for about so many seconds: one epoch is timed, then as many are planned as fit."""
    epochs = epochs_within(config, data, folder, seconds, seed)
    return train(config.override({"training.epochs": epochs}), data, folder, seed)

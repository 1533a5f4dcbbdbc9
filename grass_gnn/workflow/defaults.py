"""Settings for data of one's own, by how much there is of it."""

from __future__ import annotations

from typing import Any

from grass_gnn.config import FeatureConfig, InputConfig, TaskConfig

_LARGE = 60  # nodes of an average graph from which walks of all pairs cost more than eigenvectors
_STEPS = 7_000  # optimiser steps that a run takes, more or less


def default_settings(num_train: int, mean_nodes: float) -> dict[str, Any]:
    """Depth, width, batch size, epochs, encoding and evaluation, by dotted name.

    Small sets get shallow networks and many epochs of small batches, large sets the opposite, so
    that a run takes minutes on two cores either way. Three added edges a node train faster than
    the paper's six, and in runs this short no worse. Graphs of more than sixty nodes on average
    are encoded by their leading eigenvectors (D-RRWP).

    Args:
        num_train: Number of training graphs.
        mean_nodes: Nodes of an average graph.
    """
    batch_size = max(8, min(100, num_train // 20))
    epochs = max(20, min(300, round(_STEPS * batch_size / max(num_train, 1))))
    layers = 8 if num_train < 1000 else 12
    large = mean_nodes > _LARGE
    return {
        "encoding.kind": "decomposed-rrwp" if large else "rrwp",
        "encoding.steps": 32 if large else 16,
        "rewiring.degree": 3,
        "model.layers": layers,
        "model.residual_scale": 0.3 if layers < 12 else 0.2,
        "training.batch_size": batch_size,
        "training.epochs": epochs,
        "training.learning_rate": 1e-3 if num_train >= 1000 else 5e-4,
        "training.patience": max(20, epochs // 3),
        "evaluation.statistics_passes": 3 if num_train >= 1000 else 10,
        "evaluation.rewirings": 16,
    }


def data_settings(features: InputConfig, task: TaskConfig) -> dict[str, Any]:
    """What follows from the data and no configuration file can know better."""
    return {
        **_feature_settings("input.nodes", features.nodes),
        **_feature_settings("input.edges", features.edges),
        "input.descriptors": features.descriptors,
        **{f"task.{name}": value for name, value in task.model_dump().items()},
    }


def _feature_settings(name: str, features: FeatureConfig) -> dict[str, Any]:
    return {f"{name}.kind": features.kind, f"{name}.sizes": features.sizes}

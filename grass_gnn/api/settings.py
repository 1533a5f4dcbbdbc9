"""The configuration of a run on your own data: defaults by its size, features and task from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grass_gnn.config import FeatureConfig, GRASSConfig, InputConfig, TaskConfig
from grass_gnn.data.tables.dataset import TableData
from grass_gnn.data.tables.molecules import input_config
from grass_gnn.tasks import make_task

if TYPE_CHECKING:
    from torch_geometric.data import Data


_LARGE = 60  # mean number of nodes above which RRWP costs more than eigenvectors
_STEPS = 7_000  # approximate number of optimiser steps in a run


def default_settings(num_train: int, mean_nodes: float) -> dict[str, Any]:
    """Depth, width, batch size, epochs, encoding and evaluation, by dotted name.

    Small datasets get shallow networks and many epochs of small batches, large ones the opposite,
    so that a run takes minutes on two cores. Three added edges per node train faster than the
    paper's six, and no worse in runs this short. Graphs with more than sixty nodes on average are
    encoded by their leading eigenvectors (D-RRWP). Normalised inputs are clipped, because values
    that are rare in a small training set would otherwise reach the network at any size.

    Args:
        num_train: Number of training graphs.
        mean_nodes: Mean number of nodes of a graph.
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
        "model.input_limit": 8.0,
        "model.residual_scale": 0.3 if layers < 12 else 0.2,
        "training.batch_size": batch_size,
        "training.epochs": epochs,
        "training.learning_rate": 1e-3 if num_train >= 1000 else 5e-4,
        "training.patience": max(20, epochs // 3),
        "evaluation.statistics_passes": 3 if num_train >= 1000 else 10,
        "evaluation.rewirings": 16,
    }


def data_settings(features: InputConfig, task: TaskConfig) -> dict[str, Any]:
    """The settings that follow from the data: features and task."""
    return {
        **_feature_settings("input.nodes", features.nodes),
        **_feature_settings("input.edges", features.edges),
        "input.descriptors": features.descriptors,
        **{f"task.{name}": value for name, value in task.model_dump().items()},
    }


def _feature_settings(name: str, features: FeatureConfig) -> dict[str, Any]:
    return {f"{name}.kind": features.kind, f"{name}.sizes": features.sizes}


def choose_table_config(
    data: TableData, config: GRASSConfig | None = None, settings: Mapping[str, Any] | None = None
) -> GRASSConfig:
    """:func:`choose_config` for a table."""
    columns = {"descriptors": len(data.schema.descriptors)}
    inputs = input_config(data.schema.features).model_copy(update=columns)
    return choose_config(data.splits["train"], inputs, data.task, config, settings)


def choose_config(
    graphs: Sequence[Data],
    features: InputConfig,
    task: TaskConfig,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
) -> GRASSConfig:
    """The configuration of a run on your own data.

    Args:
        graphs: The training graphs.
        features: Their features.
        task: The task.
        config: Configuration to start from, instead of the defaults by size.
        settings: Changes by dotted name, which override everything else.
    """
    if config is None:
        config = GRASSConfig().override(default_settings_for(graphs))
    scaling = make_task(task).scaling([_training_targets(data) for data in graphs])
    task = task.model_copy(update=scaling)
    fixed = data_settings(features, task) | {"dataset": None}
    return config.override(fixed | dict(settings or {}))


def default_settings_for(graphs: Sequence[Data]) -> dict[str, Any]:
    """The default settings for training graphs, by dotted name."""
    nodes = sum(int(data.num_nodes or 0) for data in graphs) / len(graphs)
    return default_settings(len(graphs), nodes)


def _training_targets(data: Data) -> Any:
    """The targets of a graph that are in the training set."""
    return data.y if data.get("train_mask") is None else data.y[data.train_mask]


def describe(config: GRASSConfig) -> str:
    """Model and training in one sentence."""
    model, training = config.model, config.training
    stopping = f", patience {training.patience}" if training.patience else ""
    return (
        f"Model: {model.layers} layers of width {model.dim}; at most {training.epochs} "
        f"epochs with batches of {training.batch_size}{stopping}."
    )

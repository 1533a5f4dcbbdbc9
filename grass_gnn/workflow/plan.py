"""The settings of a run: defaults by the size of the data, what the data decide, and changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig, InputConfig, TaskConfig
from grass_gnn.data.vocabulary import FEATURES
from grass_gnn.workflow.dataset import TableData
from grass_gnn.workflow.defaults import data_settings, default_settings


def plan_table(
    data: TableData, config: GRASSConfig | None = None, settings: Mapping[str, Any] | None = None
) -> GRASSConfig:
    """:func:`plan` for a table."""
    columns = {"descriptors": len(data.schema.descriptors)}
    inputs = FEATURES[data.schema.features].model_copy(update=columns)
    return plan(data.splits["train"], inputs, data.task, config, settings)


def plan(
    graphs: Sequence[Data],
    features: InputConfig,
    task: TaskConfig,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
) -> GRASSConfig:
    """The configuration of a run: defaults by size or a given one, the data's part, changes.

    Args:
        graphs: The training graphs.
        features: What they come with.
        task: What is to be learned.
        config: A configuration to start from, instead of the defaults by size.
        settings: Changes, by dotted name.
    """
    if config is None:
        config = GRASSConfig().override(suited_settings(graphs))
    if task.kind == "regression":
        task = task.model_copy(
            update=target_scaling([_training_targets(data) for data in graphs], task.outputs)
        )
    fixed = data_settings(features, task) | {"dataset": None}
    return config.override(fixed | dict(settings or {}))


def suited_settings(graphs: Sequence[Data]) -> dict[str, Any]:
    """The default settings for training graphs, by dotted name."""
    nodes = sum(int(data.num_nodes or 0) for data in graphs) / len(graphs)
    return default_settings(len(graphs), nodes)


def target_scaling(targets: Sequence[Any], outputs: int) -> dict[str, list[float]]:
    """Mean and standard deviation of each target over the training set, missing ones left out."""
    values = torch.cat([torch.as_tensor(y).view(-1, outputs).double() for y in targets])
    known = ~torch.isnan(values)
    count = known.sum(dim=0).clamp(min=1)
    filled = torch.where(known, values, 0.0)
    mean = filled.sum(dim=0) / count
    spread = (torch.where(known, values - mean, 0.0).square().sum(dim=0) / count).sqrt()
    scale = torch.where(spread > 1e-12, spread, 1.0)
    return {"target_scale": scale.tolist(), "target_shift": mean.tolist()}


def _training_targets(data: Data) -> Any:
    """The targets of a graph that training may see."""
    return data.y if data.get("train_mask") is None else data.y[data.train_mask]


def describe(config: GRASSConfig) -> str:
    """Model and training in a sentence."""
    model, training = config.model, config.training
    stopping = f", patience {training.patience}" if training.patience else ""
    return (
        f"Model: {model.layers} layers of width {model.dim}; {training.epochs} epochs at most, "
        f"batches of {training.batch_size}{stopping}."
    )

"""Small datasets whose graphs differ in how many targets they have, so that processes do too."""

from pathlib import Path

import torch
from test_run import SETTINGS

from grass_gnn import GRASSConfig
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.testing import random_input

REGRESSION = {"task.outputs": 2, "task.missing": True}
NODES = {
    "task.level": "node",
    "task.kind": "classification",
    "task.outputs": 3,
    "task.loss": "weighted-cross-entropy",
    "task.metric": "accuracy",
}
CASES = {
    "regression": REGRESSION,
    "regression-fused": REGRESSION,
    "nodes": NODES,
    "nodes-fused": NODES,
    "accumulated": REGRESSION | {"training.accumulate": 2, "training.patience": 1},
}
OTHERS = {"removal": REGRESSION | {"model.edge_removal": 0.2}}


def config(case: str, **changes) -> GRASSConfig:
    return GRASSConfig().override(
        SETTINGS
        | {"model.edge_removal": 0.0, "training.optimizer": "adamw", "training.epochs": 2}
        | (CASES | OTHERS)[case]
        | {name.replace("__", "."): value for name, value in changes.items()}
    )


def data(chosen: GRASSConfig, folder: Path):
    """Two targets, of which every third graph lacks one; or nodes of rare and frequent classes."""
    graphs = [random_input(chosen, 3 + 5 * (seed % 3), seed) for seed in range(36)]
    for seed, graph in enumerate(graphs):
        if chosen.task.level == "node":
            graph.y = (graph.y * (seed % 4 == 0)).long()
        elif seed % 3 == 0:
            graph.y[0, seed % 2] = torch.nan
    splits = {"train": graphs[:26], "val": graphs[26:30], "test": graphs[30:]}
    return prepare(splits, chosen, folder / "cache")

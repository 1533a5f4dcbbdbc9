"""A model, a run folder and a packed dataset, small enough to be read thousands of times."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.prepare import PreparedData, prepare
from grass_gnn.data.tables.composition import Composition
from grass_gnn.evaluation.trained import TrainedModel, load_model, save_model
from grass_gnn.files import read_json
from grass_gnn.nn import GRASS
from grass_gnn.uncertainty.calibration import (
    Calibration,
    ErrorModel,
    NeighboursFile,
    SpreadCalibration,
    checksums,
)
from grass_gnn.uncertainty.domain import Domain
from grass_gnn.uncertainty.neighbours import Neighbours
from grass_gnn.uncertainty.similarity import SimilarityReference

SMALL = {
    "encoding.steps": 2,
    "rewiring.degree": 1,
    "model.dim": 4,
    "model.layers": 1,
    "model.head_hidden": 2,
}
MOLECULES = GRASSConfig().override(
    {"input.nodes.kind": "ogb-atom", "input.edges.kind": "ogb-bond", **SMALL}
)
GRAPHS = GRASSConfig().override(
    {
        "input.nodes.kind": "index",
        "input.nodes.sizes": [3],
        "input.edges.kind": "continuous",
        "input.edges.sizes": [2],
        **SMALL,
    }
)
CARD = {"table": {"smiles": "smiles", "targets": ["y"]}, "seed": 0, "classes": []}


@lru_cache(maxsize=1)
def tiny_model() -> TrainedModel:
    """An untrained model of molecules."""
    torch.manual_seed(0)
    return TrainedModel(
        GRASS(MOLECULES).eval(), MOLECULES, {"config": MOLECULES.model_dump(), **CARD}
    )


def write_run(folder: Path) -> None:
    """Write the files of a run folder that prediction reads."""
    bits = np.random.default_rng(0).integers(0, 2, (4, 1024)).astype(np.uint8)
    checksum = SimilarityReference.of(bits).save(folder)
    save_model(tiny_model().model, folder, similarity_sha256=checksum, **CARD)
    write_error_bars(folder)


def write_error_bars(folder: Path) -> None:
    """Write what training leaves for error bars: domain, neighbours and calibration."""
    Domain.of([Composition(3, ("C", "O"))], np.array([[1.0]])).save(folder)
    random = np.random.default_rng(1)
    columns = 3 * MOLECULES.model.dim
    known = Neighbours.of(random.random((6, columns)), random.random((6, 1)), np.zeros((6, 1)))
    checksum = known.save(folder / "neighbours.safetensors")
    file = NeighboursFile(model=checksums([load_model(folder)])[0], sha256=checksum)
    write_calibration(folder)
    found = Calibration.model_validate(read_json(folder / "calibration.json"))
    errors = ErrorModel(unit=1.0, intercept=0.0, centers=[0.0] * 5, weights=[0.2] * 5)
    target = found.targets[0].model_copy(update={"errors": errors, "scores": [0.5, 1.0, 2.0]})
    found.model_copy(update={"targets": [target], "neighbours": file}).save(folder)


def write_calibration(
    folder: Path, target: str = "y", scale: float = 2.0, rewirings: int = 1
) -> None:
    """Write the calibration of a regression, as earlier versions did: a factor."""
    found = SpreadCalibration(
        target=target,
        scale=scale,
        rows=4,
        without_spread=0,
        rank_correlation=0.5,
        area=0.1,
        scaled_area=0.05,
        within=(0.5, 0.7),
        scaled_within=(0.7, 0.9),
    )
    Calibration(
        kind="regression",
        models=checksums([load_model(folder)]),
        rewirings=rewirings,
        rows=4,
        source="val",
        targets=[found],
    ).save(folder)


def random_graph(seed: int) -> Data:
    """A random graph that matches the configuration ``GRAPHS``."""
    draw = torch.Generator().manual_seed(seed)
    n = 2 + seed % 3
    return Data(
        x=torch.randint(0, 3, (n, 1), generator=draw),
        edge_index=torch.randint(0, n, (2, 4), generator=draw),
        edge_attr=torch.rand(4, 2, generator=draw),
        y=torch.rand(1, generator=draw),
    )


def write_packed(folder: Path) -> PreparedData:
    """A packed dataset of three splits."""
    splits = {name: [random_graph(n) for n in range(3)] for name in ("train", "val", "test")}
    return prepare(splits, GRAPHS, folder)

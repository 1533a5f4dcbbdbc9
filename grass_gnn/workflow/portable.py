"""A trained model as bytes, for pickles: weights and card as a run folder has them, and no code."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from grass_gnn.evaluation import TrainedModel, load_model, save_model
from grass_gnn.evaluation.trained import CARD, WEIGHTS


def to_bytes(trained: TrainedModel) -> dict[str, bytes]:
    """The two files of a model, by their names."""
    details = {
        n: v for n, v in trained.card.items() if n not in ("format", "weights_sha256", "config")
    }
    with tempfile.TemporaryDirectory() as folder:
        save_model(trained.model, folder, **details)
        return {name: (Path(folder) / name).read_bytes() for name in (WEIGHTS, CARD)}


def from_bytes(files: dict[str, bytes]) -> TrainedModel:
    """The model that :func:`to_bytes` wrote."""
    with tempfile.TemporaryDirectory() as folder:
        for name in (WEIGHTS, CARD):
            (Path(folder) / name).write_bytes(files[name])
        return replace(load_model(folder), folder=None)

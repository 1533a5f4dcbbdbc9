"""The model whose weights a run started from, recorded in the folder of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import SHIPPED, TrainedModel
from grass_gnn.files import read_json, write_json

START = "start.json"
_RUN = "run"  # where the model was; not compared, because the folder may have moved


def record_start(folder: Path, source: TrainedModel, resume: bool, **how: Any) -> dict[str, Any]:
    """Record the model that a run starts from, for its card.

    Args:
        folder: The run folder.
        source: The model.
        resume: Whether the run is resumed; it keeps the record that it has.
        **how: What else a resumed run must have in common with its beginning.

    Raises:
        GrassError: A resumed run started from another model, or in another way.
    """
    place = source.folder
    shipped = place is not None and place.parent == SHIPPED
    start = {
        _RUN: place.name if place is not None and shipped else str(place),
        "weights_sha256": source.card.get("weights_sha256"),
        **how,
    }
    before = read_start(folder) if resume else None
    if before is None:
        write_json(folder / START, start)
        return start
    if any(before.get(name) != value for name, value in start.items() if name != _RUN):
        frozen = " with --freeze" if before.get("frozen") else ""
        raise GrassError(
            f"The run in {folder} started from {before.get(_RUN)}{frozen}: use the same options."
        )
    return before


def read_start(folder: Path) -> dict[str, Any] | None:
    """The record of a run folder, if the run started from a model."""
    path = folder / START
    return read_json(path) if path.is_file() else None

"""Training from the weights of another run, which is recorded in the folder of the new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.prepare import PreparedData
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import SHIPPED, TrainedModel, load_model
from grass_gnn.files import read_json, write_json
from grass_gnn.nn.deepen import start_from
from grass_gnn.training.options import RunOptions
from grass_gnn.training.run import Run, run_folder, train

START = "start.json"
_RUN = "run"  # where the model was; not compared, because the folder may have moved


def train_from(
    source: str | Path | None,
    config: GRASSConfig,
    data: PreparedData,
    folder: str | Path,
    options: RunOptions | None = None,
) -> Run:
    """Train from the weights of a finished run, whose model may have fewer layers.

    Args:
        source: The run, or the name of a model that comes with the package. None: the one that a
            resumed run has started from, and otherwise random weights.
        config: The configuration of the new run.
        data: The prepared splits.
        folder: The folder of the new run.
        options: Seed, device, processes, loggers, and whether to resume.

    Raises:
        GrassError: The weights do not fit the configuration, or a resumed run started from others.
    """
    folder, options = Path(folder), options or RunOptions()
    if source is None and options.resume and (start := read_start(folder)):
        source = start[_RUN]
    if source is None:
        return train(config, data, folder, options)
    with run_folder(folder, options.resume):
        first = load_model(source)
        model = start_from(first.model, config)
        card = {"start": record_start(folder, first, options.resume)}
        return train(config, data, folder, options, model=model, card=card)


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

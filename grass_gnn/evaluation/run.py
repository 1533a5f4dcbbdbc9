"""Evaluate the model of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from grass_gnn.data.packed.prepare import PreparedData, open_prepared, prepare_benchmark
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.protocol import BY_GRAPH, TEST, VALIDATION, evaluate
from grass_gnn.evaluation.trained import TrainedModel, load_model
from grass_gnn.progress import Progress, reporting, silent

STREAMS = {"train": 4, "val": VALIDATION, "test": TEST}  # of random numbers


def evaluate_run(
    folder: str | Path,
    data: str | Path | None = None,
    split: str = "test",
    rewirings: int | None = None,
    seed: int | None = None,
    deterministic: bool = False,
    workers: int = 1,
    device: str | None = None,
) -> dict[str, Any]:
    """Evaluate the model of a run folder on its dataset.

    Args:
        folder: The run folder.
        data: Folder with the raw files; by default the one used in training.
        split: ``"train"``, ``"val"`` or ``"test"``.
        rewirings: Number of rewirings; as configured by default.
        seed: Random seed of the rewirings; that of the run by default.
        deterministic: Derive the rewirings of each graph from the graph alone, as in ``predict``.
        workers: Threads that prepare batches while the model computes.
        device: Device to run on; the GPU if there is one, otherwise the CPU.
    """
    if split not in STREAMS:
        raise GrassError(f"There is no split {split!r}; available: {', '.join(STREAMS)}.")
    trained = load_model(folder, device)
    config = trained.config
    seed = trained.card.get("seed", 0) if seed is None else seed
    stream = BY_GRAPH if deterministic else STREAMS[split]
    with reporting() as progress:
        prepared = find_data(trained, data, progress)
        result, *_ = evaluate(
            trained.model, prepared.splits[split], config, seed, rewirings, stream, workers
        )
    results = {"split": split, split: result.to_dict()}
    return results if config.dataset is None else {"official": prepared.official, **results}


def find_data(
    trained: TrainedModel, data: str | Path | None = None, progress: Progress = silent
) -> PreparedData:
    """The data of a run, from its folder or from the raw files of its benchmark."""
    try:
        origin = _CardData.model_validate(trained.card.get("data", {})).origin
    except ValidationError:
        raise GrassError(f"The description of the data in {trained.folder} is damaged.") from None
    if origin.prepared is not None and trained.folder is not None:
        return open_prepared(trained.folder / "data" / origin.prepared, trained.config)
    generate = origin.generated
    if data is None and origin.folder is not None and Path(origin.folder).is_dir():
        data = origin.folder
    return prepare_benchmark(
        trained.config, data, None if data else generate, origin.seed, progress
    )


class _Origin(BaseModel):
    """Where the data of a run came from, as its card says."""

    prepared: Annotated[str, Field(pattern=r"^[\w-]+$")] | None = None  # no path
    folder: str | None = None
    generated: list[int] | None = None
    seed: int = 0


class _CardData(BaseModel):
    origin: _Origin = _Origin()

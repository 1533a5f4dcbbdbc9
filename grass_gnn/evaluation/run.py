"""Evaluate the model of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grass_gnn.errors import GrassError
from grass_gnn.evaluation.protocol import BY_GRAPH, TEST, VALIDATION, evaluate
from grass_gnn.evaluation.stack import load_stack
from grass_gnn.evaluation.trained import Prediction, find_data, load_model
from grass_gnn.progress import reporting

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

    Scores of validation and test rows are those of the network averaged with its forest, if it has
    one. The forest has seen the training rows, so they are scored for the network alone.

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
        result, mean, std = evaluate(
            trained.model, prepared.splits[split], config, seed, rewirings, stream, workers
        )
    scores, stack = result.to_dict(), load_stack(trained)
    if stack is not None and split in stack.splits:
        target = prepared.splits[split].tensors["y"]
        scores = stack.rescore(scores, Prediction(mean, std), target, split)
    results = {"split": split, split: scores}
    return results if config.dataset is None else {"official": prepared.official, **results}

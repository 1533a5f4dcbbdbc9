"""Runs on data of one's own: the run folder keeps the encoded splits beside the trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig
from grass_gnn.data import prepare
from grass_gnn.locks import locked
from grass_gnn.progress import Progress
from grass_gnn.training import Run, check_folder, train
from grass_gnn.workflow.dataset import TableData
from grass_gnn.workflow.similarity import SimilarityReference
from grass_gnn.workflow.start import Start

DATA_FOLDER = "data"  # in a run folder: the encoded splits, for evaluate


def train_table(
    data: TableData,
    config: GRASSConfig,
    out: Path,
    path: str | Path,
    *,
    seed: int = 0,
    resume: bool = False,
    **options: Any,
) -> Run:
    """Train on a table that was read from ``path``, of which the folder keeps an account.

    Args:
        data: The rows that were read.
        config: Settings of model and training.
        out: The run folder.
        path: The table.
        seed: Of everything random.
        resume: Go on with an interrupted run.
        options: What else :func:`train_graphs` takes.
    """
    with locked(out):
        check_folder(out, resume)
        data.write_account(out)
        checksum = SimilarityReference.of(data.fingerprints).save(out)
        return train_graphs(
            data.splits,
            config,
            out,
            seed,
            resume,
            card={"table": data.schema.model_dump(), "similarity_sha256": checksum},
            origin={"table": str(path)},
            **options,
        )


def train_graphs(
    splits: Mapping[str, Sequence[Data]],
    config: GRASSConfig,
    out: Path,
    seed: int = 0,
    resume: bool = False,
    *,
    card: Mapping[str, Any],
    origin: Mapping[str, Any] | None = None,
    start: Start | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Run:
    """Encode graphs into a run folder, and train on them there.

    Args:
        splits: The graphs of each split.
        config: Settings of model and training.
        out: The run folder.
        seed: Of everything random.
        resume: Go on with an interrupted run.
        card: What the model's card says of the data.
        origin: Where they come from, beside their place in the folder.
        start: A trained model to start from, if any.
        progress: Told what is done; a bar on a terminal if not given.
        options: What else :func:`grass_gnn.training.train` takes.
    """
    with locked(out):
        check_folder(out, resume)
        if start is not None:
            card = {**card, "start": start.record(out, resume)}
        prepared = prepare(splits, config, out / DATA_FOLDER, progress=progress)
        prepared = replace(prepared, origin={"prepared": prepared.folder.name, **(origin or {})})
        model = None if start is None else start.build(config, prepared, seed)
        return train(
            config,
            prepared,
            out,
            seed,
            resume,
            model=model,
            progress=progress,
            card=card,
            **options,
        )

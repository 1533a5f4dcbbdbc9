"""Training on a table of molecules: one call from a file to a run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig, InputConfig, TaskConfig
from grass_gnn.data import prepare
from grass_gnn.data.splits import DEFAULT_SHARES
from grass_gnn.data.vocabulary import FEATURES
from grass_gnn.errors import GrassError
from grass_gnn.locks import locked
from grass_gnn.progress import Progress, reporting
from grass_gnn.training import Run, check_folder, train
from grass_gnn.workflow.dataset import TableData, read_tables
from grass_gnn.workflow.defaults import data_settings, default_settings
from grass_gnn.workflow.run_folders import FOLDS
from grass_gnn.workflow.similarity import SimilarityReference

# Well-known molecules, with Crippen's logP and the polar surface (TPSA) as RDKit computes them.
EXAMPLE = Path(str(resources.files("grass_gnn") / "data" / "example.csv"))
EXAMPLE_TARGET = "logP"
DATA_FOLDER = "data"  # in a run folder: the encoded splits, for evaluate


def fit_table(
    path: str | Path,
    targets: Sequence[str],
    out: str | Path,
    *,
    smiles: str | None = None,
    val: str | Path | None = None,
    test: str | Path | None = None,
    split: str = "random",
    shares: Sequence[float] = DEFAULT_SHARES,
    features: str = "ogb",
    descriptors: Sequence[str] = (),
    task: str | None = None,
    bad_rows: str = "skip",
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    split_seed: int | None = None,
    resume: bool = False,
    workers: int = 1,
    logger: str | None = None,
    console: Console | None = None,
    say: Callable[[str], None] = lambda sentence: None,
    progress: Progress | None = None,
    devices: int | str | None = None,
    nodes: int | None = None,
) -> Run:
    """Train on molecules, and leave a run folder that ``predict`` needs nothing beside.

    Args:
        path: The table; see :func:`read_tables` for this and the next arguments.
        targets: Columns to learn.
        out: The run folder.
        smiles: Column of SMILES.
        val: A table of validation rows.
        test: A table of test rows.
        split: How rows are divided.
        shares: Shares of training, validation and test.
        features: Vocabulary of atoms and bonds.
        descriptors: Columns of numbers beside the graph.
        task: What the targets are.
        bad_rows: What to do with rows that cannot be used.
        config: Settings of model and training; what suits the size of the data if not given.
        settings: Changes to them, by dotted name.
        seed: Of everything random.
        split_seed: Of a random split; ``seed`` if not given. Models of an ensemble with the same
            split have validation rows in common, on which the ensemble can be calibrated.
        resume: Go on with an interrupted run.
        workers: Threads that prepare batches.
        logger: Another place to log to.
        console: Where the progress of training goes.
        say: Told what was found in the table, a sentence at a time.
        progress: Told about reading and evaluation; a bar on a terminal if not given.
        devices: Processes on each machine that share each batch.
        nodes: Machines.
    """
    out = Path(out)
    check_folder(out, resume)
    if (out / FOLDS).exists():
        raise GrassError(f"{out} holds a cross-validation: give another --out, or --folds.")
    with reporting(progress) as report:
        data = read_tables(
            path,
            targets,
            smiles=smiles,
            val=val,
            test=test,
            split=split,
            shares=shares,
            features=features,
            descriptors=descriptors,
            task=task,
            bad_rows=bad_rows,
            seed=seed if split_seed is None else split_seed,
            progress=report,
        )
    for sentence in data.said:
        say(sentence)
    chosen = plan_table(data, config, settings)
    say(describe(chosen))
    return train_table(
        data,
        chosen,
        out,
        path,
        seed=seed,
        resume=resume,
        workers=workers,
        logger=logger,
        console=console,
        progress=progress,
        devices=devices,
        nodes=nodes,
    )


def train_table(
    data: TableData,
    config: GRASSConfig,
    out: Path,
    path: str | Path,
    *,
    seed: int = 0,
    resume: bool = False,
    workers: int = 1,
    logger: str | None = None,
    console: Console | None = None,
    progress: Progress | None = None,
    devices: int | str | None = None,
    nodes: int | None = None,
) -> Run:
    """Train on a table that was read from ``path``; see :func:`fit_table` for the rest."""
    with locked(out):
        check_folder(out, resume)
        prepared = prepare(data.splits, config, out / DATA_FOLDER, progress=progress)
        prepared = replace(prepared, origin={"prepared": prepared.folder.name, "table": str(path)})
        data.write_account(out)
        checksum = SimilarityReference.of(data.fingerprints).save(out)
        return train(
            config,
            prepared,
            out,
            seed,
            resume,
            workers,
            logger=logger,
            console=console,
            progress=progress,
            card={"table": data.schema.model_dump(), "similarity_sha256": checksum},
            devices=devices,
            nodes=nodes,
        )


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

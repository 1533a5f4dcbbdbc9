"""Runs on data of one's own: the run folder keeps the encoded splits beside the trained model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from torch_geometric.data import Data

from grass_gnn.api.graphs import divide, infer_graph_task, infer_input, read_graphs
from grass_gnn.api.settings import describe, plan, plan_table
from grass_gnn.config import GRASSConfig, InputConfig
from grass_gnn.data.packed.prepare import prepare
from grass_gnn.data.tables.dataset import TableData, read_tables
from grass_gnn.data.tables.files import is_table
from grass_gnn.data.tables.splits import DEFAULT_SHARES
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.trained import TrainedModel, load_model
from grass_gnn.locks import locked
from grass_gnn.progress import Progress, reporting
from grass_gnn.training.run import Run, check_folder, train
from grass_gnn.uncertainty.ensembles import FOLDS
from grass_gnn.uncertainty.similarity import SimilarityReference

if TYPE_CHECKING:
    from grass_gnn.api.finetuning import Start

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


EXAMPLE = Path(str(resources.files("grass_gnn") / "data" / "example.csv"))
"""Well-known molecules, with Crippen's logP and the polar surface (TPSA) as RDKit computes them."""
EXAMPLE_TARGET = "logP"
"""The column of it that is learned."""


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


Graphs: TypeAlias = Sequence[Data] | Mapping[str, Sequence[Data]] | Data


def fit(
    data: Graphs | str | Path,
    out: str | Path | None = None,
    *,
    target: str | Sequence[str] = (),
    level: str | None = None,
    task: str | None = None,
    shares: Sequence[float] = DEFAULT_SHARES,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **table_options: Any,
) -> TrainedModel:
    """Train GRASS on data of one's own; features, task and dimensions are inferred.

    Args:
        data: A list or ``Dataset`` of PyG graphs with targets ``y``, a mapping of
            ``"train"``, ``"val"`` and ``"test"`` to such lists, one graph whose nodes or edges
            have targets, a file of saved graphs (``.pt``), or a table of molecules.
        out: The run folder; if not given, only the model that is returned remains.
        target: Of a table, the column or columns to learn.
        level: What has a target: ``"graph"``, ``"node"`` or ``"edge"``; inferred if not given.
        task: ``"regression"``, ``"binary"``, ``"classification"`` or ``"multilabel"``; inferred
            if not given (integers are classes, numbers are quantities, zeros and ones labels).
        shares: Shares of training, validation and test, where they are drawn.
        config: Settings to start from; by the size of the data if not given.
        settings: Changes to them, by dotted name.
        seed: Of everything random.
        progress: Told what is done; a bar on a terminal if not given.
        table_options: Of a table, what else :func:`fit_table` takes.

    Example:
        >>> model = fit(graphs, "runs/mine", settings={"training.epochs": 50})  # doctest: +SKIP
        >>> mean, std = model.predict(new_graphs, rewirings=16)  # doctest: +SKIP
    """
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            found = fit(
                data,
                Path(folder) / "run",
                target=target,
                level=level,
                task=task,
                shares=shares,
                config=config,
                settings=settings,
                seed=seed,
                progress=progress,
                **table_options,
            )
            return replace(found, folder=None)
    out = Path(out)
    if isinstance(data, (str, Path)):
        if is_table(data):
            targets = [target] if isinstance(target, str) else list(target)
            fit_table(
                data,
                targets,
                out,
                shares=shares,
                task=task,
                config=config,
                settings=settings,
                seed=seed,
                progress=progress,
                **table_options,
            )
            return load_model(out)
        data = read_graphs(data)
    if table_options or target:
        given = ", ".join([*table_options, *(["target"] if target else [])])
        raise GrassError(f"Of a list of graphs, there is no use for {given}.")
    fit_graphs(data, out, level, task, shares, config, settings, seed, progress)
    return load_model(out)


def fit_graphs(
    data: Graphs,
    out: Path,
    level: str | None = None,
    task: str | None = None,
    shares: Sequence[float] = DEFAULT_SHARES,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    features: InputConfig | None = None,
) -> None:
    """Train on PyG graphs and leave a run folder; see :func:`fit` for the arguments.

    ``features`` are what the graphs come with, if that is not to be inferred.
    """
    check_folder(out, resume=False)
    splits = divide(data, level, shares, seed)
    graphs = list({id(one): one for part in splits.values() for one in part}.values())
    found_task = infer_graph_task(graphs, level, task)
    chosen = plan(splits["train"], features or infer_input(graphs), found_task, config, settings)
    card = {"classes": graphs[0].get("classes") or []}
    train_graphs(splits, chosen, out, seed, card=card, progress=progress)

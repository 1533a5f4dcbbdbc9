"""``grass_gnn.finetune``: from a trained model to one for other targets, with a new head."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from grass_gnn.data.splits import DEFAULT_SHARES
from grass_gnn.data.tables import is_table, open_table
from grass_gnn.errors import GrassError
from grass_gnn.evaluation import TrainedModel, load_model
from grass_gnn.progress import Progress, reporting
from grass_gnn.training import Run, check_folder
from grass_gnn.workflow.convert import read_graphs
from grass_gnn.workflow.dataset import read_tables
from grass_gnn.workflow.fitting import Graphs
from grass_gnn.workflow.inference import divide, infer_graph_task, infer_input
from grass_gnn.workflow.own_runs import train_graphs, train_table
from grass_gnn.workflow.schema import TableSchema
from grass_gnn.workflow.start import Start


def finetune(
    run: str | Path | TrainedModel,
    data: Graphs | str | Path,
    out: str | Path | None = None,
    *,
    target: str | Sequence[str] = (),
    freeze: bool = False,
    level: str | None = None,
    task: str | None = None,
    shares: Sequence[float] = DEFAULT_SHARES,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    resume: bool = False,
    progress: Progress | None = None,
    **table_options: Any,
) -> TrainedModel:
    """Train a model further, on other data, with a new head for their targets.

    Features, encoding, rewiring and layers are those of the model to start from.

    Args:
        run: The folder of a run, or a model, to start from.
        data: What :func:`grass_gnn.fit` takes: graphs, a file of them, or a table of molecules.
        out: The run folder; if not given, only the model that is returned remains.
        target: Of a table, the column or columns to learn.
        freeze: Train the new head alone; layers, and the statistics of their norms, stay as they
            are. If not, all weights are trained and the norms' statistics are those of the new
            graphs.
        level: What has a target: ``"graph"``, ``"node"`` or ``"edge"``; inferred if not given.
        task: Kind of the task; inferred if not given.
        shares: Shares of training, validation and test, where they are drawn.
        settings: Changes by dotted name, of ``training``, ``evaluation`` and the head.
        seed: Of everything random.
        resume: Go on with an interrupted run.
        progress: Told what is done; a bar on a terminal if not given.
        table_options: Of a table, what else :func:`finetune_table` takes.

    Example:
        >>> model = finetune("runs/logS", "own.csv", target="pKa", freeze=True)  # doctest: +SKIP
    """
    given: dict[str, Any] = {"shares": shares, "task": task, "settings": settings, "seed": seed}
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            given |= {"target": target, "freeze": freeze, "level": level, "progress": progress}
            found = finetune(run, data, Path(folder) / "run", **given, **table_options)
            return replace(found, folder=None)
    start = Start(run if isinstance(run, TrainedModel) else load_model(run), freeze)
    out = Path(out)
    given |= {"resume": resume, "progress": progress}
    if isinstance(data, (str, Path)) and is_table(data):
        targets = [target] if isinstance(target, str) else list(target)
        finetune_table(start, data, targets, out, **given, **table_options)
        return load_model(out)
    if table_options or target:
        unused = ", ".join([*table_options, *(["target"] if target else [])])
        raise GrassError(f"Of a list of graphs, there is no use for {unused}.")
    graphs = read_graphs(data) if isinstance(data, (str, Path)) else data
    _finetune_graphs(start, graphs, out, level, **given)
    return load_model(out)


def finetune_table(
    start: Start,
    path: str | Path,
    targets: Sequence[str],
    out: Path,
    *,
    smiles: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    resume: bool = False,
    workers: int = 1,
    logger: str | None = None,
    console: Console | None = None,
    say: Callable[[str], None] = lambda sentence: None,
    progress: Progress | None = None,
    **reading: Any,
) -> Run:
    """Train a model further on a table of molecules, and leave a run folder.

    Args:
        start: What to start from, a model that was trained on molecules.
        path: The table.
        targets: Columns to learn.
        out: The run folder.
        smiles: Column of SMILES; that of the start, or found by its name, if not given.
        settings: Changes to the settings, by dotted name.
        seed: Of everything random.
        resume: Go on with an interrupted run.
        workers: Threads that prepare batches.
        logger: Another place to log to.
        console: Where the progress of training goes.
        say: Told what was found, a sentence at a time.
        progress: Told about reading and evaluation; a bar on a terminal if not given.
        reading: What else :func:`read_tables` takes, but for the features, which are the start's.
    """
    check_folder(out, resume)
    schema = TableSchema.from_card(start.source.card)
    if schema is None:
        raise GrassError(f"A table needs a model of molecules, which {start.name} is not.")
    if smiles is None and schema.smiles in open_table(path).columns:
        smiles = schema.smiles
    with reporting(progress) as report:
        data = read_tables(
            path,
            targets,
            smiles=smiles,
            features=schema.features,
            seed=seed,
            progress=report,
            **reading,
        )
    for sentence in data.said:
        say(sentence)
    features = start.source.config.input.model_copy(
        update={"descriptors": len(data.schema.descriptors)}
    )
    config = start.plan(data.splits["train"], features, data.task, settings)
    say(start.describe(config))
    return train_table(
        data,
        config,
        out,
        path,
        seed=seed,
        resume=resume,
        start=start,
        workers=workers,
        logger=logger,
        console=console,
        progress=progress,
    )


def _finetune_graphs(
    start: Start,
    data: Graphs,
    out: Path,
    level: str | None,
    task: str | None,
    shares: Sequence[float],
    settings: Mapping[str, Any] | None,
    seed: int,
    resume: bool,
    progress: Progress | None,
) -> None:
    check_folder(out, resume)
    splits = divide(data, level, shares, seed)
    graphs = list({id(one): one for part in splits.values() for one in part}.values())
    features = start.check_features(infer_input(graphs))
    found = infer_graph_task(graphs, level, task)
    config = start.plan(splits["train"], features, found, settings)
    card = {"classes": graphs[0].get("classes") or []}
    train_graphs(splits, config, out, seed, resume, card=card, start=start, progress=progress)

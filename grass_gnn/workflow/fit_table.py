"""Training on a table of molecules: one call from a file to a run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from rich.console import Console

from grass_gnn.config import GRASSConfig
from grass_gnn.data.splits import DEFAULT_SHARES
from grass_gnn.errors import GrassError
from grass_gnn.progress import Progress, reporting
from grass_gnn.training import Run, check_folder
from grass_gnn.workflow.dataset import read_tables
from grass_gnn.workflow.own_runs import train_table
from grass_gnn.workflow.plan import describe, plan_table
from grass_gnn.workflow.run_folders import FOLDS

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

"""k-fold cross-validation on a table: a run for each fold, and what they say together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from grass_gnn.config import GRASSConfig
from grass_gnn.data.folds import group_folds, random_folds
from grass_gnn.data.molecules import scaffold
from grass_gnn.data.splits import DEFAULT_SHARES, check_splits, random_split
from grass_gnn.errors import GrassError
from grass_gnn.evaluation import load_model
from grass_gnn.files import write_text
from grass_gnn.locks import locked
from grass_gnn.progress import Progress, reporting
from grass_gnn.training import Interrupted, check_folder
from grass_gnn.workflow.dataset import TableData, csv_text, in_splits
from grass_gnn.workflow.fold_summary import CrossValidation, summarize
from grass_gnn.workflow.own_runs import train_table
from grass_gnn.workflow.plan import describe, plan_table
from grass_gnn.workflow.rows import ReadRows, read_rows
from grass_gnn.workflow.run_folders import FOLDS


def cross_validate(
    path: str | Path,
    targets: Sequence[str],
    out: str | Path,
    folds: int = 5,
    *,
    smiles: str | None = None,
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
) -> CrossValidation:
    """Train as often as there are folds, each time testing on another one.

    Folds are drawn at random, of a binary or multi-class target with equal shares of each class,
    or hold whole groups of one scaffold. Validation rows come from the folds that train. The runs
    are in ``out/fold-1`` and so on; ``out`` itself can be given to ``predict`` as their ensemble.

    Args:
        path: The table; see :func:`fit_table` for this and what is not said here.
        targets: Columns to learn.
        out: The folder of all runs.
        folds: How many.
        smiles: Column of SMILES.
        split: ``"random"`` or ``"scaffold"``.
        shares: Of them, those of training and validation divide what is not tested on.
        features: Vocabulary of atoms and bonds.
        descriptors: Columns of numbers beside the graph.
        task: What the targets are.
        bad_rows: What to do with rows that cannot be used.
        config: Settings of model and training.
        settings: Changes to them, by dotted name.
        seed: Of everything random; fold k trains with seed + k − 1.
        split_seed: Of the folds; ``seed`` if not given.
        resume: Keep the folds that are finished, and go on with the others.
        workers: Threads that prepare batches.
        logger: Another place to log to.
        console: Where the progress of training goes.
        say: Told what was found, a sentence at a time.
        progress: Told about reading and evaluation.
    """
    if split not in ("random", "scaffold"):
        raise GrassError(f"Folds are drawn: --split is random or scaffold, not {split!r}.")
    out = Path(out)
    check_folder(out, resume)
    with reporting(progress) as report:
        read = read_rows(
            path,
            targets,
            smiles=smiles,
            features=features,
            descriptors=descriptors,
            task=task,
            bad_rows=bad_rows,
            progress=report,
        )
    plan = _Plan(read, folds, split, shares, seed if split_seed is None else split_seed)
    for fold in range(folds):  # before the first of them is trained for an hour
        check_splits(list(plan.parts(fold).values()))
    with locked(out):
        _keep(out, plan.table, resume)
        for fold in range(folds):
            folder, data = out / f"fold-{fold + 1}", plan.data(fold)
            chosen = plan_table(data, config, settings)
            if fold == 0:
                for sentence in (*data.said, describe(chosen)):
                    say(sentence)
            if _finished(folder, chosen):
                say(f"Fold {fold + 1} of {folds} is finished already.")
                continue
            say(f"Fold {fold + 1} of {folds}.")
            try:
                train_table(
                    data,
                    chosen,
                    folder,
                    path,
                    seed=seed + fold,
                    resume=resume and (folder / "checkpoints").exists(),
                    workers=workers,
                    logger=logger,
                    console=console,
                    progress=progress,
                )
            except Interrupted:
                raise Interrupted(
                    f"Stopped in fold {fold + 1} of {folds}; go on with --resume --out {out}."
                ) from None
        return summarize(out, read, plan.folds, folds)


class _Plan:
    """Which rows test, validate and train in each fold."""

    def __init__(
        self, read: ReadRows, count: int, split: str, shares: Sequence[float], seed: int
    ) -> None:
        self.read, self.shares, self.seed = read, shares, seed
        usable = read.usable
        self.scaffolds = None
        if split == "scaffold":
            self.scaffolds = {number: scaffold(read.rows[number].smiles) for number in usable}
            drawn = group_folds(list(self.scaffolds.values()), count)
        else:
            classes = read.task.kind in ("binary", "classification")
            labels = [read.values[number][0][0] for number in usable] if classes else None
            drawn = random_folds(len(usable), count, seed, labels)
        self.folds = dict(zip(usable, drawn, strict=True))  # of each usable row

    @property
    def table(self) -> str:
        """The fold of each row, as CSV."""
        rows = [(self.read.rows[number], fold) for number, fold in self.folds.items()]
        return csv_text(
            ["file", "line", "fold"], [[row.file, row.line, fold + 1] for row, fold in rows]
        )

    def parts(self, fold: int) -> dict[int, str]:
        """The split of each row: the fold is tested on, and some of the rest validates."""
        rest = [number for number, own in self.folds.items() if own != fold]
        train, val = self.shares[:2]
        if self.scaffolds is not None:
            # So many parts of whole groups that one of them has about validation's share.
            groups = [self.scaffolds[number] or str(number) for number in rest]
            count = max(2, min(round((train + val) / val), len(set(groups))))
            part = group_folds(groups, count)
            drawn = ["val" if own == count - 1 else "train" for own in part]
        else:
            drawn = random_split(len(rest), [train, val, 0.0], self.seed + fold)
        return dict.fromkeys(self.folds, "test") | dict(zip(rest, drawn, strict=True))

    def data(self, fold: int) -> TableData:
        """The graphs of a fold's splits."""
        parts = self.parts(fold)
        rows = [replace(row, split=parts.get(n)) for n, row in enumerate(self.read.rows)]
        return in_splits(self.read, rows)


def _keep(out: Path, table: str, resume: bool) -> None:
    """Write which row is in which fold, or see that it is as it was."""
    path = out / FOLDS
    if path.exists():
        if not resume:
            raise GrassError(f"{out} holds a cross-validation: use --resume, or another --out.")
        if path.read_text("utf-8") != table:
            raise GrassError(
                f"The cross-validation in {out} has other folds: resume it with the same table, "
                "--folds, --split and seeds, or use another --out."
            )
        return
    if resume:
        raise GrassError(f"There is no cross-validation to resume in {out}.")
    write_text(path, table)


def _finished(folder: Path, config: GRASSConfig) -> bool:
    """Whether a fold is done, and with these settings."""
    if not (folder / "results.json").is_file():
        return False
    if load_model(folder).config != config:
        raise GrassError(f"{folder} was trained with other settings: use another --out.")
    return True

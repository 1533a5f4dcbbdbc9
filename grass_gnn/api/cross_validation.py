"""What the folds of a cross-validation say together: mean and spread, and all rows at once."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from grass_gnn.api.fitting import train_table
from grass_gnn.api.settings import describe, plan_table
from grass_gnn.config import GRASSConfig
from grass_gnn.data.tables.dataset import TableData, csv_text, in_splits
from grass_gnn.data.tables.files import guard
from grass_gnn.data.tables.molecules import scaffold
from grass_gnn.data.tables.schema import ReadRows, read_rows
from grass_gnn.data.tables.splits import (
    DEFAULT_SHARES,
    check_splits,
    group_folds,
    random_folds,
    random_split,
)
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.protocol import bootstrap
from grass_gnn.evaluation.trained import load_model
from grass_gnn.files import read_json, write_json, write_text
from grass_gnn.locks import locked
from grass_gnn.progress import Progress, reporting
from grass_gnn.tasks import make_task
from grass_gnn.training.fit import Interrupted
from grass_gnn.training.run import check_folder
from grass_gnn.uncertainty.ensembles import CROSS_VALIDATION, FOLDS, Ensemble, Spread

PREDICTIONS = "out_of_fold.csv"


@dataclass(frozen=True)
class FoldScores:
    """One metric of a cross-validation; NaN where it is not defined is left out."""

    folds: list[float | None]
    mean: float | None
    std: float | None  # over folds, a sample's
    pooled: float | None  # of all rows, each predicted by the run that did not see it
    interval: tuple[float, float]  # 95 % of the pooled score, over resampled rows


@dataclass(frozen=True)
class CrossValidation:
    """The summary of a cross-validation."""

    metric: str  # the main one
    runs: list[str]  # folders of the folds
    rows: list[int]  # that each fold was tested on
    metrics: dict[str, FoldScores]
    spread_correlation: float | None  # of a regression: Spearman's ρ of spread and absolute error

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def summarize(out: Path, read: ReadRows, folds: Mapping[int, int], count: int) -> CrossValidation:
    """Gather the finished runs of a folder, and write what they say into it.

    Args:
        out: The folder with the runs ``fold-1`` and so on.
        read: The rows of the table.
        folds: The fold of each usable row.
        count: How many folds there are.
    """
    runs = [f"fold-{fold + 1}" for fold in range(count)]
    numbers = list(folds)
    place = {number: at for at, number in enumerate(numbers)}
    task = make_task(read.task)
    outputs = task.outputs
    mean, std = torch.full((2, len(numbers), outputs), math.nan, dtype=torch.float64)
    for fold, run in enumerate(runs):
        rows = [place[number] for number in numbers if folds[number] == fold]
        mean[rows], std[rows] = _read_predictions(out / run, len(rows), outputs)
    target = torch.tensor([read.values[number][0] for number in numbers], dtype=torch.float64)
    labels = task.as_targets(target)
    owner = torch.arange(len(numbers))
    results = [read_json(out / run / "results.json")["test"]["metrics"] for run in runs]
    metrics = {}
    for name in task.metrics:
        values = [_number(result[name][0]) for result in results]
        known = [value for value in values if value is not None]
        metrics[name] = FoldScores(
            values,
            fmean(known) if known else None,
            stdev(known) if len(known) > 1 else None,
            _number(task.score(mean, labels, name)),
            bootstrap(task, mean, labels, owner, name),
        )
    correlation = task.spread_correlation(mean, std, target)
    tested = [sum(own == fold for own in folds.values()) for fold in range(count)]
    found = CrossValidation(task.metric, runs, tested, metrics, correlation)
    _write_predictions(out, read, folds, mean, std)
    write_json(out / CROSS_VALIDATION, found.to_dict())
    return found


def _read_predictions(run: Path, rows: int, outputs: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [rows, outputs] of a run's test predictions."""
    path = run / "test_predictions.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            cells = list(csv.DictReader(file))
        parts = [
            [[float(row[f"{kind}_{number}"]) for number in range(outputs)] for row in cells]
            for kind in ("mean", "std")
        ]
        mean, std = torch.tensor(parts, dtype=torch.float64).view(2, rows, outputs)
    except (OSError, KeyError, ValueError, TypeError, RuntimeError):
        raise GrassError(f"The file {path} is damaged: it holds no {rows} predictions.") from None
    return mean, std


def _write_predictions(
    out: Path, read: ReadRows, folds: Mapping[int, int], mean: Tensor, std: Tensor
) -> None:
    """A row a molecule, in the order of the table, predicted by the run that did not see it."""
    ensemble = Ensemble([load_model(out / "fold-1")])
    header = ["file", "line", "fold", read.schema.smiles, *read.schema.targets, *ensemble.columns]
    rows = []
    for at, (number, fold) in enumerate(folds.items()):
        row = read.rows[number]
        given = [row.file, row.line, fold + 1, row.smiles, *row.targets]
        predicted = ensemble.success(Spread(mean[at], std[at], std[at], std[at]), math.nan, "")
        rows.append([guard(str(cell)) for cell in given] + predicted)
    unused = len(("similarity", "warning", "error"))
    text = csv_text([guard(name) for name in header[:-unused]], [row[:-unused] for row in rows])
    write_text(out / PREDICTIONS, text)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


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
            classes = make_task(read.task).cells == "classes"
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

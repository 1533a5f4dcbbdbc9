"""Cross-validation: one run per fold, and their scores together."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from grass_gnn.api.calibration import calibrate_models
from grass_gnn.api.fitting import choose_start, describe, table_options, train_table
from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.prepare import content_hash
from grass_gnn.data.tables.dataset import (
    TableData,
    check_shares,
    check_splits,
    csv_text,
    group_folds,
    in_splits,
    random_folds,
    random_split,
    stratified_by,
)
from grass_gnn.data.tables.reading import read_scaffolds
from grass_gnn.data.tables.rows import ReadRows, read_rows
from grass_gnn.data.tables.schema import TableSchema
from grass_gnn.data.tables.spec import TableSpec
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.predictions import SavedPredictions
from grass_gnn.evaluation.protocol import bootstrap
from grass_gnn.evaluation.trained import load_model
from grass_gnn.files import locked, read_json, read_text, write_json, write_text
from grass_gnn.progress import reporting
from grass_gnn.tasks import make_task
from grass_gnn.training.options import RunOptions
from grass_gnn.training.record import FOLDER as CHECKPOINTS
from grass_gnn.training.run import check_folder
from grass_gnn.training.signals import Interrupted
from grass_gnn.uncertainty.ensembles import (
    CROSS_VALIDATION,
    FOLDS,
    Ensemble,
    Spread,
    load_models,
    run_folders,
)

logger = logging.getLogger(__name__)

PREDICTIONS = "out_of_fold.csv"
_FOLD = "fold"  # its number in results.json, written when nothing is missing any more


@dataclass(frozen=True)
class FoldScores:
    """One metric of a cross-validation; None where it is undefined."""

    folds: list[float | None]
    mean: float | None
    std: float | None  # sample standard deviation over folds
    pooled: float | None  # over all rows, each predicted by the run that was not trained on it
    interval: tuple[float, float]  # 95 % bootstrap interval of the pooled score


@dataclass(frozen=True)
class CrossValidation:
    """The summary of a cross-validation."""

    metric: str  # the main metric
    runs: list[str]  # folder of each fold
    rows: list[int]  # number of test rows of each fold
    metrics: dict[str, FoldScores]
    spread_correlation: float | None  # regression: Spearman's ρ of std and absolute error
    baseline: dict[str, float]  # each metric of the forest, mean over folds, if there is one

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def summarize(out: Path, read: ReadRows, folds: Mapping[int, int], count: int) -> CrossValidation:
    """Summarise the finished runs of a folder; the summary and all predictions are written to it.

    Args:
        out: The folder with the runs ``fold-1``, ``fold-2``, ….
        read: The rows of the table.
        folds: The fold of each usable row.
        count: Number of folds.
    """
    runs = [f"fold-{fold + 1}" for fold in range(count)]
    numbers = list(folds)
    place = {number: at for at, number in enumerate(numbers)}
    task = make_task(read.task)
    outputs = task.outputs
    mean, std = torch.full((2, len(numbers), outputs), math.nan, dtype=torch.float64)
    ends = torch.full((len(numbers), outputs, 2), math.nan, dtype=torch.float64)
    for fold, run in enumerate(runs):
        rows = [place[number] for number in numbers if folds[number] == fold]
        path = out / run / "test_predictions.csv"
        saved = SavedPredictions.read(path, task)
        if any(part.shape != (len(rows), outputs) for part in (saved.mean, saved.std)):
            raise GrassError(f"The file {path} is damaged: {len(rows)} predictions expected.")
        mean[rows], std[rows] = torch.from_numpy(saved.mean), torch.from_numpy(saved.std)
        if saved.ends.shape == (len(rows), 2 * outputs):
            ends[rows] = torch.from_numpy(saved.ends).view(-1, outputs, 2)
    truth = [read.values[number].targets for number in numbers]
    target = torch.tensor(truth, dtype=torch.float64)
    labels = task.as_targets(target)
    owner = torch.arange(len(numbers))
    finished = [read_json(out / run / "results.json") for run in runs]
    results = [found["test"]["metrics"] for found in finished]
    forests = [found.get("baseline", {}).get("test", {}) for found in finished]
    baseline = {
        name: fmean(scores[name] for scores in forests)
        for name in task.metrics
        if all(name in scores for scores in forests)
    }
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
    found = CrossValidation(task.metric, runs, tested, metrics, correlation, baseline)
    _write_predictions(out, read, folds, (mean, std, ends))
    write_json(out / CROSS_VALIDATION, found.to_dict())
    return found


def _write_predictions(
    out: Path, read: ReadRows, folds: Mapping[int, int], predicted: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Write the out-of-fold prediction of each molecule, in the order of the table.

    ``predicted`` are means, standard deviations [M, outputs] and ends of intervals [M, outputs, 2],
    NaN where there are none.
    """
    mean, std, ends = predicted
    ensemble = Ensemble([load_model(out / "fold-1", "cpu")])
    columns = [read.schema.smiles, *read.schema.targets, *ensemble.prediction_columns]
    rows = []
    for at, (number, fold) in enumerate(folds.items()):
        row = read.rows[number]
        given = [row.file, row.line, fold + 1, row.smiles, *row.targets]
        one = Spread(mean[at], std[at], std[at], std[at])
        known = None if ends[at].isnan().any() else (ends[at, :, 0], ends[at, :, 1])
        rows.append(given + ensemble.prediction_cells(one, known))
    write_text(out / PREDICTIONS, csv_text(["file", "line", "fold", *columns], rows))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def cross_validate(
    path: str | Path,
    targets: TableSpec | str | Sequence[str],
    out: str | Path,
    folds: int = 5,
    options: RunOptions | None = None,
    *,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    **fields: Any,
) -> CrossValidation:
    """Cross-validate on a table of molecules: one run per fold, tested on that fold.

    Folds are drawn at random (stratified for a binary or multi-class target) or keep molecules
    with the same scaffold together. Validation rows are taken from the training folds. The runs
    are written to ``out/fold-1``, ``out/fold-2``, …; ``predict`` uses ``out`` as their ensemble.

    Args:
        path: The table.
        targets: Columns to predict, or a :class:`TableSpec`. The shares of its training and
            validation set divide the rows that are not tested on.
        out: The folder of all runs.
        folds: Number of folds.
        options: How to run each training. Fold k uses seed + k − 1; with ``resume``, finished
            folds are kept.
        config: Configuration to start from; chosen by the size of the data by default.
        settings: Changes to the configuration, by dotted name.
        **fields: Further fields of :class:`TableSpec` and :class:`RunOptions`.

    Example:
        >>> cross_validate("own.csv", ["logS"], "runs/cv", folds=5).metrics  # doctest: +SKIP
    """
    spec, options = table_options(targets, options, fields)
    if spec.split not in ("random", "stratified", "scaffold"):
        raise GrassError(f"With folds, --split is random or scaffold, not {spec.split!r}.")
    if spec.val is not None or spec.test is not None:
        raise GrassError("Cross-validation uses a single table: leave out --val and --test.")
    out = Path(out)
    check_folder(out, options.resume)
    with reporting(options.progress):
        read = read_rows(path, spec)
    splits = FoldSplits(read, folds, spec, options.seed)
    for fold in range(folds):  # check this before training, which may take hours
        check_splits(list(splits.of_rows(fold).values()))
    with locked(out):
        _write_folds(out, splits.table, options.resume)
        for fold in range(folds):
            folder, data = out / f"fold-{fold + 1}", splits.data(fold)
            chosen, pretrained = choose_start(data, config, settings, spec.from_scratch)
            if fold == 0:
                for sentence in (*data.summary, describe(chosen)):
                    logger.info(sentence)
            if _finished(folder, data, chosen):
                logger.info("Fold %d of %d is already finished.", fold + 1, folds)
                continue
            logger.info("Fold %d of %d.", fold + 1, folds)
            resume = options.resume and (folder / CHECKPOINTS).exists()
            own = replace(options, seed=options.seed + fold, resume=resume)
            try:
                run = train_table(data, chosen, folder, path, own, pretrained, spec)
            except Interrupted:
                raise Interrupted(
                    f"Stopped in fold {fold + 1} of {folds}; resume with --resume --out {out}."
                ) from None
            write_json(folder / "results.json", {**run.results, _FOLD: fold + 1})
        found = summarize(out, read, splits.folds, folds)
        try:
            calibrate_models(
                load_models([out], options.device),
                run_folders(out),
                rewirings=chosen.evaluation.rewirings,
                plot=False,
                progress=options.progress,
            )
        except GrassError as error:
            logger.info("No calibration: %s", error)
        return found


class FoldSplits:
    """The training, validation and test rows of each fold.

    Args:
        read: The rows of the table.
        count: Number of folds.
        spec: How to draw the folds.
        seed: Random seed, unless the spec has one.
    """

    def __init__(self, read: ReadRows, count: int, spec: TableSpec, seed: int) -> None:
        check_shares(spec.shares)
        if not spec.shares[1]:
            raise GrassError("Folds need validation rows: the second of the shares must not be 0.")
        self.read, self.shares = read, spec.shares
        self.seed = seed if spec.split_seed is None else spec.split_seed
        usable = read.usable
        self.scaffolds = self.labels = None
        if spec.split == "scaffold":
            found = read_scaffolds([read.rows[number].smiles for number in usable])
            self.scaffolds = dict(zip(usable, found, strict=True))
            drawn = group_folds(list(self.scaffolds.values()), count)
        else:
            classes = make_task(read.task).cells == "classes"
            labels = [read.values[number].targets[0] for number in usable] if classes else None
            drawn = random_folds(len(usable), count, self.seed, labels)
            # Validation rows are drawn as those of a single run, so that they have rare classes.
            rare = stratified_by(read, usable, spec.split == "stratified")
            self.labels = None if rare is None else dict(zip(usable, rare, strict=True))
        self.folds = dict(zip(usable, drawn, strict=True))  # usable row → fold

    @property
    def table(self) -> str:
        """The fold of each row, as CSV."""
        rows = [(self.read.rows[number], fold) for number, fold in self.folds.items()]
        return csv_text(
            ["file", "line", "fold"], [[row.file, row.line, fold + 1] for row, fold in rows]
        )

    def of_rows(self, fold: int) -> dict[int, str]:
        """Split of each usable row: test is the fold, validation is part of the rest."""
        rest = [number for number, own in self.folds.items() if own != fold]
        train, val = self.shares[:2]
        if self.scaffolds is not None:
            # Divide groups into parts, each of about the size of the validation set.
            groups = [self.scaffolds[number] for number in rest]
            count = max(2, min(round((train + val) / val), len(set(groups))))
            part = group_folds(groups, count)
            drawn = ["val" if own == count - 1 else "train" for own in part]
        else:
            labels = None if self.labels is None else [self.labels[number] for number in rest]
            drawn = random_split(len(rest), [train, val, 0.0], self.seed + fold, labels)
        return dict.fromkeys(self.folds, "test") | dict(zip(rest, drawn, strict=True))

    def data(self, fold: int) -> TableData:
        """The graphs of a fold, in splits."""
        splits = self.of_rows(fold)
        rows = [replace(row, split=splits.get(n)) for n, row in enumerate(self.read.rows)]
        return in_splits(self.read, rows)


def _write_folds(out: Path, table: str, resume: bool) -> None:
    """Write the fold of each row; when resuming, check that it has not changed."""
    path = out / FOLDS
    if path.exists():
        if not resume:
            raise GrassError(f"{out} contains a cross-validation: use --resume or another --out.")
        if read_text(path) != table:
            raise GrassError(
                f"The cross-validation in {out} has different folds: resume it with the same "
                "table, --folds, --split and seeds, or use another --out."
            )
        return
    if resume:
        raise GrassError(f"There is no cross-validation to resume in {out}.")
    write_text(path, table)


def _finished(folder: Path, data: TableData, config: GRASSConfig) -> bool:
    """Whether a fold is finished; raises if it used other data or settings.

    A fold that was stopped while its forest or its error bars were added has results, but without
    its number. So do finished folds of earlier versions: to resume them only repeats what follows
    the training, for which they need their checkpoints.
    """
    if not (folder / "results.json").is_file():
        return False
    model = load_model(folder, "cpu")
    used = model.card.get("data", {}).get("fingerprint", {}).get("hash")
    # The schema names the targets, and the hash is about their values and the rows of each split.
    if TableSchema.from_card(model.card) != data.schema or used != content_hash(data.splits):
        raise GrassError(
            f"{folder} was trained with other targets, values or validation rows: resume it with "
            "the same table and --target, or use another --out."
        )
    if model.config != config:
        raise GrassError(f"{folder} was trained with different settings: use another --out.")
    return _FOLD in read_json(folder / "results.json") or not (folder / CHECKPOINTS).exists()

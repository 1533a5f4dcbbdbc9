"""What the folds of a cross-validation say together: mean and spread, and all rows at once."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from grass_gnn.config import METRICS
from grass_gnn.errors import GrassError
from grass_gnn.evaluation import load_model, score
from grass_gnn.evaluation.calibration import rank_correlation
from grass_gnn.evaluation.protocol import bootstrap
from grass_gnn.files import read_json, write_json, write_text
from grass_gnn.workflow.dataset import csv_text
from grass_gnn.workflow.ensemble import Ensemble, Spread
from grass_gnn.workflow.predict import guard
from grass_gnn.workflow.rows import ReadRows
from grass_gnn.workflow.run_folders import CROSS_VALIDATION

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
    outputs = read.task.outputs
    mean, std = torch.full((2, len(numbers), outputs), math.nan, dtype=torch.float64)
    for fold, run in enumerate(runs):
        rows = [place[number] for number in numbers if folds[number] == fold]
        mean[rows], std[rows] = _read_predictions(out / run, len(rows), outputs)
    target = torch.tensor([read.values[number][0] for number in numbers], dtype=torch.float64)
    labels = target.flatten().long() if read.task.kind == "classification" else target
    owner = torch.arange(len(numbers))
    results = [read_json(out / run / "results.json")["test"]["metrics"] for run in runs]
    metrics = {}
    for name in METRICS[read.task.kind]:
        values = [_number(result[name][0]) for result in results]
        known = [value for value in values if value is not None]
        metrics[name] = FoldScores(
            values,
            fmean(known) if known else None,
            stdev(known) if len(known) > 1 else None,
            _number(score(read.task, mean, labels, name)),
            bootstrap(read.task, mean, labels, owner, name),
        )
    correlation = None
    if read.task.kind == "regression":
        correlation = rank_correlation(std, (mean - target).abs())
    tested = [sum(own == fold for own in folds.values()) for fold in range(count)]
    found = CrossValidation(read.task.metric, runs, tested, metrics, correlation)
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

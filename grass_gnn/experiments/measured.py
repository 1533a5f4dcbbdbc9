"""Results of the runs of a grid, read from their folders and averaged over seeds."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch

from grass_gnn.config import GRASSConfig
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.predictions import SavedPredictions
from grass_gnn.experiments.budget import Budget
from grass_gnn.experiments.catalogue import Cell, Experiment
from grass_gnn.experiments.grid import GRID, open_grid
from grass_gnn.experiments.job import CARD, ERROR, PREDICTIONS, RESULTS, SHOWN_PREDICTIONS, state
from grass_gnn.files import read_json, read_text
from grass_gnn.tasks import METRICS, make_task

MIB, GIB = 2**20, 2**30


@dataclass(frozen=True)
class Measured:
    """A number with its standard deviation over seeds, or within the only run."""

    mean: float
    spread: float | None
    runs: int

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean over seeds."""
        return None if self.spread is None or self.runs < 2 else self.spread / self.runs**0.5


class SeedNoise(NamedTuple):
    """How much scores differ between seeds, pooled over cells."""

    relative: float  # standard deviation of the logarithm of a score
    freedom: int  # degrees of freedom of that estimate


@dataclass(frozen=True)
class RunRecord:
    """A finished run, read from its folder."""

    folder: Path

    @cached_property
    def results(self) -> dict[str, Any]:
        """``results.json``."""
        return read_json(self.folder / RESULTS)

    @cached_property
    def config(self) -> GRASSConfig:
        """``config.toml``."""
        return GRASSConfig.from_toml(self.folder / "config.toml")

    @cached_property
    def card(self) -> dict[str, Any]:
        """``cell.json``, of a run that belongs to a grid."""
        return read_json(self.folder / CARD) if (self.folder / CARD).is_file() else {}

    @cached_property
    def curve(self) -> list[dict[str, float]]:
        """The rows of ``metrics.csv``, without missing values."""
        path = self.folder / "metrics.csv"
        if not path.is_file():
            return []
        rows = csv.DictReader(io.StringIO(read_text(path), newline=""))
        return [{k: float(v) for k, v in row.items() if v} for row in rows]

    @cached_property
    def predictions(self) -> list[tuple[float, float]]:
        """(target, prediction) for some of the test set; empty if the run saved none."""
        path = self.folder / PREDICTIONS
        if not path.is_file():
            return self._averaged_predictions()
        _, *rows = csv.reader(io.StringIO(read_text(path), newline=""))
        return [(float(row[0]), float(row[1])) for row in rows]

    def _averaged_predictions(self) -> list[tuple[float, float]]:
        """Predictions of a single run: values of its only target, or its most likely classes."""
        path, task = self.folder / "test_predictions.csv", make_task(self.config.task)
        if not path.is_file() or task.chart is None or task.target_columns > 1:
            return []
        saved = SavedPredictions.read(path, task)
        answers = task.decide(torch.from_numpy(saved.mean)).flatten().double().tolist()
        pairs = list(zip(saved.target[:, 0].tolist(), answers, strict=True))
        return pairs[:: -(-len(pairs) // SHOWN_PREDICTIONS)] if pairs else []

    @property
    def is_cell(self) -> bool:
        """Whether the run belongs to a grid, whose predictions are those of one rewiring."""
        return (self.folder / PREDICTIONS).is_file()

    @property
    def percent(self) -> bool:
        """Whether the paper prints the metric in per cent."""
        return METRICS[self.config.task.metric].in_percent

    def measure(self, name: str) -> float:
        """A number in the unit of the paper's tables."""
        test, scale = self.results["test"], 100.0 if self.percent else 1.0
        data, training = self.results["data"], self.results["training"]
        numbers = {
            "score": scale * test["mean"],
            "variance": scale**2 * test["variance"],
            "epoch_seconds": training["epoch_seconds"]["mean"],
            "peak_memory": training["peak_memory_mb"] * 1e6 / MIB,
            "preparation_seconds": data["preparation_seconds"],
            "prepared_size": data["prepared_bytes"] / GIB,
            "dense_size": self.card.get("dense_rrwp_bytes", 0) / GIB,
        }
        if name not in numbers:
            raise GrassError(f"Runs measure {', '.join(numbers)}, but not {name!r}.")
        return numbers[name]


def average(runs: Sequence[RunRecord], name: str) -> Measured | None:
    """A number over several seeds."""
    if not runs:
        return None
    values = [run.measure(name) for run in runs]
    spread = statistics.stdev(values) if len(values) > 1 else None
    if name == "epoch_seconds":  # the paper gives the standard deviation over epochs
        spreads = [run.results["training"]["epoch_seconds"]["std"] for run in runs]
        spread = statistics.mean(spreads)
    return Measured(statistics.mean(values), spread, len(values))


@dataclass(frozen=True)
class GridRecord:
    """Everything in the folder of a grid."""

    folder: Path
    experiment: Experiment
    budget: Budget
    runs: dict[str, list[RunRecord]]  # finished ones, by cell
    failures: dict[str, str]  # by place
    unfinished: list[str]  # places

    @classmethod
    def open(cls, folder: str | Path) -> GridRecord:
        """Read a grid."""
        folder = Path(folder)
        experiment, budget = open_grid(folder)
        runs: dict[str, list[RunRecord]] = {name: [] for name in experiment.cells}
        failures, unfinished = {}, []
        for path in sorted(folder.glob("*/seed-*"), key=lambda p: (p.parent.name, _seed(p))):
            status, place = state(path), f"{path.parent.name}/{path.name}"
            if status == "finished" and path.parent.name in runs:
                runs[path.parent.name].append(RunRecord(path))
            elif status == "failed":
                failures[place] = read_json(path / ERROR)["error"]
            elif status == "begun":
                unfinished.append(place)
        return cls(folder, experiment, budget, runs, failures, unfinished)

    def renamed(self, name: str) -> GridRecord:
        """The same grid under another name, to compare two grids of one experiment."""
        title = f"{self.experiment.title} ({self.folder.resolve().name})"
        return replace(self, experiment=replace(self.experiment, name=name, title=title))

    def measured(self, cell: Cell, measure: str) -> Measured | None:
        """A measured number of a cell; None if it has not been run."""
        return average(self.runs.get(cell.name, []), measure)

    def lookup(self, table: str, row: str, column: str) -> Measured | None:
        """The measured number of a place in the paper's tables."""
        for filling in self.experiment.fillings:
            if filling.table != table:
                continue
            for cell in self.experiment.cells.values():
                if filling.concerns(cell) and filling.place(cell) == (row, column):
                    return self.measured(cell, filling.measure)
        return None

    @cached_property
    def seed_noise(self) -> SeedNoise | None:
        """Spread of the scores over seeds, from all cells with more than one run."""
        groups = [
            [math.log(max(run.measure("score"), 1e-12)) for run in runs]
            for runs in self.runs.values()
            if len(runs) > 1
        ]
        freedom = sum(len(group) - 1 for group in groups)
        if freedom == 0:
            return None
        squares = sum((len(group) - 1) * statistics.variance(group) for group in groups)
        return SeedNoise((squares / freedom) ** 0.5, freedom)

    @property
    def all_runs(self) -> list[RunRecord]:
        """Finished runs of all cells."""
        return [run for runs in self.runs.values() for run in runs]


def _seed(path: Path) -> int:
    return int(path.name.removeprefix("seed-"))


def is_grid(folder: Path) -> bool:
    """Whether a folder contains a grid rather than a run."""
    return (folder / GRID).is_file()

"""One run of a grid: a cell with a seed and a budget, stored in a folder."""

from __future__ import annotations

import csv
import io
import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.prepare import PreparedData, prepare_benchmark
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.protocol import predict_split
from grass_gnn.experiments.budget import Budget, epochs_within, same_size
from grass_gnn.experiments.catalogue import Cell
from grass_gnn.files import read_json, write_json, write_text
from grass_gnn.nn.model import count_parameters
from grass_gnn.tasks import make_task
from grass_gnn.training.options import RunOptions
from grass_gnn.training.record import checkpoints
from grass_gnn.training.run import Run, train
from grass_gnn.training.signals import Interrupted

CARD, RESULTS, ERROR, PREDICTIONS = "cell.json", "results.json", "error.json", "predictions.csv"
SHOWN_PREDICTIONS = 2000  # drawn in a report


@dataclass(frozen=True)
class Source:
    """Where the graphs come from: a folder, a generator, or a download."""

    folder: str | None = None
    generate: tuple[int, int, int] | None = None

    def prepare(self, config: GRASSConfig) -> PreparedData:
        """Read and encode the graphs, or load them from the cache."""
        return prepare_benchmark(config, self.folder, self.generate)


@dataclass(frozen=True)
class Job:
    """Everything a run needs, as plain values that can be sent to other machines."""

    experiment: str
    cell: Cell
    seed: int
    budget: Budget
    source: Source
    epochs: int | None = None  # planned from minutes, the same for all cells of a preset
    threads: int | None = None  # of this process; as many as there are cores if not given

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"{self.cell.name}, seed {self.seed}"

    @property
    def place(self) -> str:
        """Folder of the job, relative to that of the grid."""
        return f"{self.cell.name}/seed-{self.seed}"

    @property
    def identity(self) -> dict[str, Any]:
        """What identifies a job; a planned number of epochs is not part of it."""
        return {
            "experiment": self.experiment,
            "cell": self.cell.name,
            "seed": self.seed,
            "preset": self.cell.preset,
            "settings": self.cell.settings,
            "budget": self.budget.to_dict(),
        }

    def config(self) -> GRASSConfig:
        """The configuration within the budget; baselines have the same size as GRASS."""
        cell, own = self.cell, list(self.cell.settings)
        config = cell.config()
        if cell.architecture is not None:
            grass = self.budget.apply(GRASSConfig.preset(cell.preset))
            layers = min(config.model.layers, self.budget.layers or 10**6)
            changes = {**cell.settings, "model.layers": layers}
            config = same_size(grass, cell.architecture, **changes)
            own.append("model.dim")  # which was fitted
        config = self.budget.apply(config, own)
        return config.override({"training.epochs": self.epochs}) if self.epochs else config


def state(folder: Path) -> str:
    """``"finished"``, ``"failed"``, ``"begun"`` or ``"new"``."""
    # Predictions are written after results, and then the checkpoints are removed.
    complete = (folder / PREDICTIONS).is_file() or not (folder / "checkpoints").is_dir()
    if (folder / RESULTS).is_file() and complete:
        return "finished"
    if (folder / ERROR).is_file():
        return "failed"
    return "begun" if (folder / CARD).is_file() else "new"


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Limit torch to a number of threads; None leaves it as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_job(job: Job, folder: Path) -> None:
    """Train and evaluate, or resume an interrupted run; an error is written to a file.

    Raises:
        Interrupted: The process was asked to stop; a later call resumes.
    """
    (folder / ERROR).unlink(missing_ok=True)
    try:
        with using_threads(job.threads):
            _train(job, folder)
    except Interrupted:
        raise
    except Exception as error:
        told = isinstance(error, GrassError)  # unexpected errors need their traceback
        message = str(error) if told else f"{type(error).__name__}: {error}"
        detail = "" if told else traceback.format_exc()
        write_json(folder / ERROR, {**job.identity, "error": message, "traceback": detail})


def _train(job: Job, folder: Path) -> None:
    config = job.config()
    data = job.budget.limit(job.source.prepare(config))
    card = read_json(folder / CARD) if (folder / CARD).is_file() else None
    resume = card is not None and bool(checkpoints(folder / "checkpoints"))
    epochs = config.training.epochs
    if (minutes := job.budget.minutes) is not None and job.epochs is None:
        if card and resume:  # keeps its number of epochs: its schedule depends on it
            epochs = card["epochs"]
        else:
            epochs = epochs_within(config, data, folder, 60 * minutes, job.seed)
    config = config.override({"training.epochs": epochs})
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    sizes = torch.cat([split.graph_ptr.diff() for split in data.splits.values()]).double()
    write_json(
        folder / CARD,
        {
            **job.identity,
            "row": job.cell.row,
            "column": job.cell.column,
            "epochs": epochs,
            "parameters": count_parameters(config),
            # As the paper stores RRWP: k dense float32 matrices per graph.
            "dense_rrwp_bytes": 4 * config.encoding.steps * int(sizes.square().sum()),
        },
    )
    run = train(config, data, folder, RunOptions(seed=job.seed, resume=resume))
    write_text(folder / PREDICTIONS, predictions_csv(run, config, data))
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # a finished cell needs none


def predictions_csv(run: Run, config: GRASSConfig, data: PreparedData) -> str:
    """Targets and predictions of the test set under one rewiring, a few thousand at most."""
    prediction, target, _ = predict_split(run.model, data.test, config, run.results["seed"])
    assert target is not None
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    task = make_task(config.task)
    writer.writerow(["target", "prediction", task.name, task.level])
    prediction = task.decide(prediction)
    pairs = torch.stack([target.flatten().double(), prediction.flatten().double()], dim=1)
    step = -(-len(pairs) // SHOWN_PREDICTIONS)
    writer.writerows([f"{a:.6g}", f"{b:.6g}"] for a, b in pairs[::step].tolist())
    return text.getvalue()

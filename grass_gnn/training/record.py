"""What a run records while it trains: its curve and its checkpoints.

The curve is a row per epoch in ``metrics.csv``, and optionally another logger. Checkpoints are
written atomically and verified when read; the last two are kept. They are read with
``weights_only=True``, which does not unpickle arbitrary objects.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import logging
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from grass_gnn.errors import GrassError, first_line
from grass_gnn.files import read_bytes, read_text, write_text, write_whole

COLUMNS = [
    "epoch",
    "step",
    "learning_rate",
    "train_loss",
    "val_metric",
    "seconds",
    "graphs_per_second",
    "peak_memory_mb",
    "skipped_steps",
]
_INTEGERS = ("epoch", "step", "skipped_steps")
FOLDER = "checkpoints"  # in a run folder
KEPT = 2  # the newest and the previous one
_LARGEST = 64 << 30  # bytes of a checkpoint
FORMAT = 2  # format 1 was that of Lightning's Trainer

logger = logging.getLogger(__name__)

Row = dict[str, Any]


class Record:
    """The rows of ``metrics.csv``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []

    @property
    def epoch_seconds(self) -> tuple[float, float, int]:
        """Mean, standard deviation and number of the measured training times of epochs."""
        times = [row["seconds"] for row in self.rows if row["seconds"] is not None]
        if not times:
            return float("nan"), 0.0, 0
        deviation = statistics.stdev(times) if len(times) > 1 else 0.0
        return statistics.mean(times), deviation, len(times)

    def read(self, epochs: int) -> None:
        """Read the rows up to an epoch; a resumed run writes later ones again."""
        if self.path.exists():
            try:
                text = io.StringIO(read_text(self.path), newline="")
                rows = [_typed(row) for row in csv.DictReader(text)]
                self.rows = [row for row in rows if row["epoch"] <= epochs]
            except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
                raise GrassError(f"The file {self.path} is damaged: {first_line(error)}.") from None

    def write(self) -> None:
        """Write all rows."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_text(self.path, text.getvalue())


def _typed(row: dict[str, str]) -> Row:
    return {
        name: None if value == "" else int(value) if name in _INTEGERS else float(value)
        for name, value in row.items()
    }


class Logger(Protocol):
    """An additional logger of the training curve."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log the values of an epoch."""

    def close(self) -> None:
        """Write remaining values."""


def open_logger(name: str | None, folder: Path) -> Logger | None:
    """The logger of a given name, writing below the run folder; None without a name."""
    if name is None:
        return None
    if name not in LOGGERS:
        raise GrassError(f"There is no logger {name!r}; available: {', '.join(LOGGERS)}.")
    try:
        return LOGGERS[name](folder)
    except ImportError:
        raise GrassError(
            f"Logging to {name} needs its package: pip install 'grass-gnn[{name}]'."
        ) from None


class TensorBoard:
    """Event files in the folder ``tensorboard``."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log the values of an epoch."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write remaining values."""
        self.writer.close()


class MLflow:
    """A run of the experiment ``grass-gnn``, in the folder ``mlflow``."""

    def __init__(self, folder: Path) -> None:
        from mlflow import MlflowClient

        self.client = MlflowClient(f"file:{folder / 'mlflow'}")
        found = self.client.get_experiment_by_name("grass-gnn")
        number = found.experiment_id if found else self.client.create_experiment("grass-gnn")
        self.run = self.client.create_run(number).info.run_id

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log the values of an epoch."""
        for name, value in values.items():
            self.client.log_metric(self.run, name, value, step=step)

    def close(self) -> None:
        """Mark the run as finished."""
        self.client.set_terminated(self.run)


class WeightsAndBiases:
    """A run of the project ``grass-gnn``."""

    def __init__(self, folder: Path) -> None:
        import wandb

        self.run = wandb.init(project="grass-gnn", dir=str(folder))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log the values of an epoch."""
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        """Mark the run as finished."""
        self.run.finish()


LOGGERS: dict[str, Callable[[Path], Logger]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}


def write_checkpoint(folder: Path, batches: int, checkpoint: dict[str, Any]) -> None:
    """Write ``BATCHES-CHECKSUM.ckpt``, then remove all but the newest two."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **checkpoint}, buffer)
    data = buffer.getvalue()
    with write_whole(folder / f"{batches:09d}-{_checksum(data)}.ckpt") as temporary:
        temporary.write_bytes(data)
    for old in checkpoints(folder)[KEPT:]:
        with contextlib.suppress(OSError):  # an extra file does no harm
            old.unlink()


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    return sorted(folder.glob("[0-9]*-*.ckpt"), reverse=True)


def read_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest undamaged checkpoint in a folder; None if there is no checkpoint at all.

    Raises:
        GrassError: There are checkpoints, but all of them are damaged.
    """
    found = checkpoints(folder)
    for path in found:
        try:
            data = read_bytes(path, _LARGEST)
            if path.stem.endswith(f"-{_checksum(data)}"):
                checkpoint = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
                if isinstance(checkpoint, dict) and "grass_gnn" in checkpoint:
                    return checkpoint if "format" in checkpoint else _from_lightning(checkpoint)
        except Exception:  # torch raises many kinds of errors for a damaged file
            pass
        logger.warning("Skipping the damaged checkpoint %s.", path)
    if found:
        raise GrassError(f"All checkpoints in {folder} are damaged: start again in another folder.")
    return None


def _from_lightning(old: dict[str, Any]) -> dict[str, Any]:
    """Convert a checkpoint of format 1 to the current format."""
    callbacks = old["callbacks"]
    return {
        "format": FORMAT,
        "grass_gnn": old["grass_gnn"],
        "model": {name.removeprefix("model."): v for name, v in old["state_dict"].items()},
        "optimizer": old["optimizer_states"][0],
        "finite": callbacks.get("FiniteSteps", {"skipped": 0, "in_a_row": 0}),
        "best": callbacks.get("BestWeights"),
        "average": None,
        "precision": old.get("MixedPrecision", {}),
    }

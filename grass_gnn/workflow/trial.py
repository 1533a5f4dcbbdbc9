"""One trial of a study: a training of which only its validations remain."""

from __future__ import annotations

import io
import tempfile
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console

from grass_gnn.config import GRASSConfig
from grass_gnn.data import PreparedData
from grass_gnn.errors import GrassError
from grass_gnn.evaluation import LOWER_IS_BETTER
from grass_gnn.locks import locked
from grass_gnn.training import build_model
from grass_gnn.training.callbacks import EpochRecord
from grass_gnn.training.fit import Besides, fit
from grass_gnn.training.module import TrainingModule

if TYPE_CHECKING:
    from optuna import Trial


def train_trial(
    trial: Trial, config: GRASSConfig, data: PreparedData, seed: int = 0, workers: int = 1
) -> float:
    """The best validation score of a training.

    Raises:
        TrialPruned: Others were better by then.
        Interrupted: A signal asked to stop.
        GrassError: The training failed.
    """
    from optuna import TrialPruned

    with tempfile.TemporaryDirectory() as folder, locked(folder) as lock:
        besides = Besides.of(config, data, lock)
        model = build_model(config, data, seed)
        module = TrialModule(model, config, data.train, data.fingerprint.hash, seed, workers)
        module.watch = WatchTrial(trial, besides.record)
        fit(module, besides, None, Console(file=io.StringIO()))
    rows = besides.record.rows
    trial.set_user_attr("epochs", len(rows))
    scores = [row["val_metric"] for row in rows if _is_number(row["val_metric"])]
    if not scores:
        raise GrassError("The validation rows cannot be scored: there may be too few of them.")
    if module.watch.pruned:
        raise TrialPruned
    return min(scores) if config.task.metric in LOWER_IS_BETTER else max(scores)


class TrialModule(TrainingModule):
    """A training that a trial watches."""

    watch: WatchTrial

    def configure_callbacks(self) -> list[Callback]:
        """What Lightning adds to the trainer's callbacks, behind them."""
        return [self.watch]


class WatchTrial(Callback):
    """Reports every validation to a trial, and ends a training that is not worth going on with."""

    def __init__(self, trial: Trial, record: EpochRecord) -> None:
        self.trial, self.record, self.pruned = trial, record, False

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the newest row of the record."""
        module: Any = pl_module
        if module.batches_done % module.batches_per_epoch:  # stopped in the middle of an epoch
            return
        row = self.record.rows[-1] if self.record.rows else None
        if row is None or row["epoch"] != module.epoch or not _is_number(row["val_metric"]):
            return
        self.trial.report(row["val_metric"], row["epoch"])
        if self.trial.should_prune():
            self.pruned = trainer.should_stop = True


def _is_number(value: float | None) -> bool:
    return value is not None and value == value

"""Lightning, and what runs beside the model: records, early ends, checkpoints, signals."""

from __future__ import annotations

import logging
import signal
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import Trainer
from rich.console import Console

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.prepare import PreparedData
from grass_gnn.errors import GrassError
from grass_gnn.hardware import peak_memory_mb
from grass_gnn.locks import FolderLock
from grass_gnn.training.callbacks import EpochRecord, ProgressLine, StopOnSignal
from grass_gnn.training.checkpoint import Checkpointer, WholeCheckpointIO
from grass_gnn.training.finite import FiniteSteps
from grass_gnn.training.loggers import make_logger
from grass_gnn.training.module import CountBatches, TrainingModule
from grass_gnn.training.patience import BestWeights


class Interrupted(GrassError):
    """The run was asked to stop; it can be resumed."""


@dataclass(frozen=True)
class Besides:
    """What a run has beside its model: its folder's lock, its record, and when it ends early."""

    lock: FolderLock
    finite: FiniteSteps
    record: EpochRecord
    best: BestWeights | None

    @classmethod
    def of(cls, config: GRASSConfig, data: PreparedData, lock: FolderLock) -> Besides:
        """As the configuration asks for."""
        training = config.training
        finite = FiniteSteps(lock.folder, training.optimizer, training.skipped_steps)
        record = EpochRecord(lock.folder / "metrics.csv", data.val, finite, config.evaluation.every)
        best = None
        if training.patience:
            best = BestWeights(record, config.task.metric, training.patience)
        return cls(lock, finite, record, best)

    def resume(self, checkpoint: Mapping[str, Any], epochs: int) -> None:
        """Go on from a checkpoint."""
        self.record.restore(epochs)
        for callback in (self.finite, self.best):
            if callback is not None and callback.state_key in checkpoint["callbacks"]:
                callback.load_state_dict(checkpoint["callbacks"][callback.state_key])

    @property
    def exhausted(self) -> bool:
        """Whether there is no better model to be expected."""
        return self.best is not None and self.best.exhausted

    def account(self, module: TrainingModule, seconds: float) -> dict[str, Any]:
        """What training was like, for ``results.json``."""
        mean, deviation, count = self.record.epoch_seconds
        return {
            "epochs": module.epoch,
            "best_epoch": self.best.epoch if self.best is not None else module.epoch,
            "epoch_seconds": {"mean": mean, "std": deviation, "epochs": count},
            "seconds": round(seconds, 2),
            "processes": module.team.size,
            "skipped_steps": self.finite.skipped,
            "peak_memory_mb": peak_memory_mb(module.device),
        }


def fit_from(
    checkpoint: dict[str, Any] | None,
    module: TrainingModule,
    besides: Besides,
    logger: str | None,
    console: Console,
) -> None:
    """:func:`fit` from a checkpoint, or from the start; unless there is nothing left to do."""
    if checkpoint is not None:
        module.resume(checkpoint)
        besides.resume(checkpoint, module.epoch)
    if module.epoch < module.run_config.training.epochs and not besides.exhausted:
        fit(module, besides, logger, console)


def fit(module: TrainingModule, besides: Besides, logger: str | None, console: Console) -> None:
    """Run Lightning over the epochs that are left.

    Raises:
        Interrupted: A signal asked to stop.
    """
    training, folder, stop = module.run_config.training, besides.lock.folder, StopOnSignal()
    team = module.team
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = Trainer(
        **team.trainer_options(module.run_config),
        max_epochs=training.epochs - module.epoch,
        precision=training.precision,
        accumulate_grad_batches=training.accumulate,
        callbacks=[
            CountBatches(),
            besides.finite,
            besides.record,
            *([besides.best] if besides.best is not None else []),
            ProgressLine(besides.record, module.run_config.task.metric, console),
            stop,
            Checkpointer(besides.lock, training.checkpoint_minutes),
        ],
        plugins=[WholeCheckpointIO(), team.environment],
        logger=make_logger(logger, folder),
        reload_dataloaders_every_n_epochs=1,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    with team.noticing_loss(), team.sharing_cores(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        try:
            trainer.fit(module)
        except SystemExit:  # Lightning's answer to a signal that came before or after ours
            stop.received = stop.received or signal.SIGTERM
    if stop.received is not None:
        raise Interrupted(
            f"Stopped in epoch {module.epoch + 1} of {training.epochs}; "
            f"go on with --resume --out {folder}."
        )

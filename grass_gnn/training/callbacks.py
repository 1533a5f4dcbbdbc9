"""What happens beside training: validation and its record, progress on a terminal, a clean stop."""

from __future__ import annotations

import csv
import io
import signal
import statistics
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from grass_gnn.data.packed.dataset import PackedDataset
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.protocol import validate
from grass_gnn.files import write_text
from grass_gnn.hardware import peak_memory_mb
from grass_gnn.training.finite import FiniteSteps

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


class EpochRecord(Callback):
    """Validates at the end of an epoch and keeps ``metrics.csv``, a row an epoch."""

    def __init__(
        self, path: Path, validation: PackedDataset | None, finite: FiniteSteps, every: int = 1
    ) -> None:
        self.path = path
        self.validation = validation
        self.finite = finite
        self.every = every
        self.rows: list[dict[str, Any]] = []
        self.started = time.perf_counter()
        self.partial = False  # an epoch that was resumed in its middle has no time of its own

    @property
    def epoch_seconds(self) -> tuple[float, float, int]:
        """Mean, standard deviation and number of the epochs' training times."""
        times = [row["seconds"] for row in self.rows if row["seconds"] is not None]
        if not times:
            return float("nan"), 0.0, 0
        return (
            statistics.mean(times),
            statistics.stdev(times) if len(times) > 1 else 0.0,
            len(times),
        )

    def restore(self, epochs: int) -> None:
        """Read the rows of the epochs before a checkpoint; later rows will come again."""
        if self.path.exists():
            try:
                with self.path.open(newline="", encoding="utf-8") as file:
                    rows = [_typed(row) for row in csv.DictReader(file)]
                self.rows = [row for row in rows if row["epoch"] <= epochs]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise GrassError(f"The file {self.path} is damaged: {error}.") from None

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self.started = time.perf_counter()
        module: Any = pl_module
        self.partial = module.batches_done % module.batches_per_epoch != 0

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Validate, and write the row of the epoch."""
        module: Any = pl_module
        if module.batches_done % module.batches_per_epoch:  # stopped in the middle of an epoch
            return
        seconds = time.perf_counter() - self.started
        epoch, config = module.epoch, module.run_config
        metric = None
        last = epoch == config.training.epochs
        due = module.team.leads and (epoch % self.every == 0 or last)
        if self.validation is not None and due:
            metric = validate(
                module.model, self.validation, config, epoch, module.seed, module.workers
            )
            module.model.train()
        graphs = module.batch_size * module.batches_per_epoch
        self.rows.append(
            {
                "epoch": epoch,
                "step": module.steps_done,
                "learning_rate": trainer.optimizers[0].param_groups[0]["lr"],
                "train_loss": module.mean_loss if module.losses else None,
                "val_metric": module.team.share(metric),
                "seconds": None if self.partial else round(seconds, 4),
                "graphs_per_second": None if self.partial else round(graphs / seconds, 1),
                "peak_memory_mb": peak_memory_mb(module.device),
                "skipped_steps": self.finite.skipped,  # since the start
            }
        )
        module.forget_losses()
        if module.team.leads:
            self.write()
        for logger in trainer.loggers:
            row = {k: v for k, v in self.rows[-1].items() if v is not None}
            logger.log_metrics(row, step=module.steps_done)

    def write(self) -> None:
        """Write all rows."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_text(self.path, text.getvalue())


def _typed(row: dict[str, str]) -> dict[str, Any]:
    whole = ("epoch", "step", "skipped_steps")
    return {
        name: None if value == "" else int(value) if name in whole else float(value)
        for name, value in row.items()
    }


class ProgressLine(Callback):
    """A progress bar over all epochs, on a terminal; silent elsewhere."""

    def __init__(self, record: EpochRecord, metric: str, console: Console) -> None:
        self.record = record
        self.metric = metric
        self.progress = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.progress.add_task("training", total=None, numbers="")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the bar, from where a resumed run stands."""
        module: Any = pl_module
        total = module.run_config.training.epochs * module.batches_per_epoch
        self.progress.update(self.task, total=total, completed=module.batches_done)
        self.progress.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """Advance by a batch."""
        module: Any = pl_module
        numbers = f"epoch {module.epoch} · loss {module.mean_loss:.4f}"
        if self.record.rows:
            row = self.record.rows[-1]
            if row["val_metric"] is not None:
                numbers += f" · val {self.metric} {row['val_metric']:.4f}"
            if row["graphs_per_second"] is not None:
                numbers += f" · {row['graphs_per_second']:.0f} graphs/s"
        self.progress.update(self.task, completed=module.batches_done, numbers=numbers)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the bar as it is."""
        self.progress.stop()


class StopOnSignal(Callback):
    """Ctrl-C and SIGTERM end training after the current step, so that a checkpoint is consistent.

    A second Ctrl-C stops at once.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take over the signals, after Lightning has; only a main thread can."""
        try:
            self._before = {number: signal.signal(number, self._note) for number in self.SIGNALS}
        except ValueError:
            self._before = {}

    def _note(self, number: int, frame: Any) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """Stop if asked to, but not between batches whose gradients are being added up.

        Of several processes all stop after the same batch, whichever was asked.
        """
        module: Any = pl_module
        batch = module.batches_done % module.batches_per_epoch
        if batch % trainer.accumulate_grad_batches:
            return
        if module.team.any(self.received is not None):
            self.received = self.received or signal.SIGTERM
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Give the signals back."""
        self.on_train_end(trainer, pl_module)

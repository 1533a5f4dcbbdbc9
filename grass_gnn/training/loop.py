"""The training loop, in the order in which things happen.

A run is a function of its seed and of the number of batches done: the graphs of a batch, their
rewiring, edge removal and the learning rate all follow from these two numbers. A checkpoint
therefore needs only weights, optimiser state and that number, and a resumed run gives bit-identical
results. Lightning Fabric provides devices, precision and processes (DDP).
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Generator
from contextlib import closing, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import GraphBatch
from grass_gnn.data.packed.loader import num_parts, training_loader
from grass_gnn.data.packed.prepare import PreparedData
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.protocol import collect, move_batch, validate
from grass_gnn.files import FolderLock
from grass_gnn.hardware import peak_memory_mb
from grass_gnn.nn.model import compile_model
from grass_gnn.nn.norm import reset_statistics, synchronise_norms
from grass_gnn.progress import reporting, silent
from grass_gnn.tasks import make_task
from grass_gnn.training.distributed import ALONE, Team
from grass_gnn.training.optim import (
    BATCH,
    SCHEDULE,
    BestWeights,
    FiniteSteps,
    NotFinite,
    WeightAverage,
    check_weights,
    largest_gradient,
    same_schedule,
    save_batch,
    set_learning_rate,
)
from grass_gnn.training.optimizers import OPTIMIZERS, make_optimizer
from grass_gnn.training.options import RunOptions
from grass_gnn.training.record import FOLDER, Record, Row, open_logger, write_checkpoint
from grass_gnn.training.signals import Interrupted, StopOnSignal

OnEpoch = Callable[[Row], bool]  # receives the row of an epoch; True stops training

logger = logging.getLogger(__name__)


class TrainingLoop:
    """Trains a model that predicts from a :class:`GraphBatch`, and keeps its checkpoints.

    Args:
        model: GRASS, or a baseline.
        config: The configuration of the run.
        data: The prepared splits.
        lock: Lock of the run folder; in processes that do not lead, nothing is written to it.
        options: Seed, workers, logger, progress.
        team: The processes that share each batch.
    """

    def __init__(
        self,
        model: nn.Module,
        config: GRASSConfig,
        data: PreparedData,
        lock: FolderLock,
        options: RunOptions | None = None,
        team: Team = ALONE,
    ) -> None:
        training = config.training
        self.model, self.config, self.data, self.lock = model, config, data, lock
        self.options, self.team = options or RunOptions(), team
        self.seed, self.task = self.options.seed, make_task(config.task)

        self.batch_size = min(training.batch_size, len(data.train))
        self.batches_per_epoch = len(data.train) // self.batch_size
        if training.sampling != "none":
            self.batches_per_epoch = num_parts(data.train, config)
        self.steps_per_epoch = -(-self.batches_per_epoch // training.accumulate)
        self.total_steps = training.epochs * self.steps_per_epoch

        # An optimiser and a moving average belong to the weights where they are trained.
        self.fabric = team.fabric(config)
        self.model.to(self.fabric.device)

        # The state of the run, all of it stored in checkpoints.
        self.batches_done = 0
        self.loss_sum, self.losses = 0.0, 0  # finite losses of the current epoch and their number
        self.optimizer = make_optimizer(model, training)
        self.finite = FiniteSteps(OPTIMIZERS[training.optimizer].largest_gradient)
        self.average = WeightAverage(model, training.average) if training.average else None
        self.best = (
            BestWeights(config.task.metric, training.patience) if training.patience else None
        )
        self.record = Record(lock.folder / "metrics.csv")

        self.last_loss = float("nan")
        self._step_loss = 0.0  # of the batches since the last optimiser step
        self._stopped_by_caller = False
        self._saved_at, self._saved_batches = time.monotonic(), -1
        self._restored: dict[str, Any] = {}  # for attributes that Fabric sets up later

    @property
    def epoch(self) -> int:
        """Number of epochs completed."""
        return self.batches_done // self.batches_per_epoch

    @property
    def batch_of_epoch(self) -> int:
        """Number of batches done in the current epoch; 0 between epochs."""
        return self.batches_done % self.batches_per_epoch

    @property
    def steps_done(self) -> int:
        """Number of optimiser steps so far; the last step of an epoch may have fewer batches."""
        steps = self.batch_of_epoch // self.config.training.accumulate
        return self.epoch * self.steps_per_epoch + steps

    @property
    def between_steps(self) -> bool:
        """Whether no gradients are waiting for more batches (``training.accumulate``)."""
        return self.batch_of_epoch % self.config.training.accumulate == 0

    @property
    def mean_loss(self) -> float | None:
        """Mean loss of the current epoch; None if no loss was finite."""
        return self.loss_sum / self.losses if self.losses else None

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train."""
        exhausted = self.best is not None and self.best.exhausted
        return self.epoch >= self.config.training.epochs or exhausted or self._stopped_by_caller

    # ---------------------------------------------------------------- the loop

    def run(self, on_epoch: OnEpoch | None = None) -> None:
        """Train until the last epoch, early stopping, or a signal.

        The model stays on the device it was trained on, with the weights of the last step; see
        :meth:`use_final_weights`.

        Args:
            on_epoch: Called with the metrics of every epoch; training stops if it returns True.

        Raises:
            Interrupted: The run was stopped by a signal. A checkpoint was written.
            NotFinite: Too many steps in a row were not finite.
            LostProcess: Another process has ended.
        """
        if self.finished:
            return
        team, options = self.team, self.options
        with (
            team.noticing_loss(),
            team.sharing_cores(),
            reporting(options.progress if team.leads else silent) as self._progress,
            StopOnSignal() as stop,
        ):
            self._set_up()
            log = open_logger(options.logger, self.lock.folder) if team.leads else None
            with closing(log) if log is not None else nullcontext():
                while not self.finished:
                    started, whole = time.perf_counter(), self.batch_of_epoch == 0
                    stopped = self._train_epoch(stop)
                    if self.batch_of_epoch:  # stopped in the middle of an epoch
                        break
                    seconds = time.perf_counter() - started if whole else None
                    row = self._end_epoch(seconds)
                    if log is not None:
                        values = {name: v for name, v in row.items() if v is not None}
                        log.log(values, self.steps_done)
                    if on_epoch is not None:
                        self._stopped_by_caller = team.share(team.leads and on_epoch(row))
                    if stopped:
                        break
                    self._save_if_due()
                self.save()
        if stop.received is not None:
            epochs = self.config.training.epochs
            raise Interrupted(
                f"Stopped in epoch {min(self.epoch + 1, epochs)} of {epochs}; "
                f"resume with --resume --out {self.lock.folder}."
            )

    def _set_up(self) -> None:
        """Give model and optimiser to Fabric, which moves them to the device and wraps them."""
        if self.team.size > 1 and self.config.training.synchronise:
            synchronise_norms(self.model)
        if self.config.training.compile:
            compile_model(self.model)
        self.fabric.launch()
        self._forward, self._optimizer = self.fabric.setup(self.model, self.optimizer)
        if self._restored:
            self.optimizer.load_state_dict(self._restored["optimizer"])
            if self._restored["precision"]:
                self.fabric.strategy.precision.load_state_dict(self._restored["precision"])
            self._restored = {}
        if self.average is not None:
            self.average.to(self.fabric.device)

    def _train_epoch(self, stop: StopOnSignal) -> bool:
        """Train on the rest of the current epoch; return whether a signal asked to stop."""
        self.model.train()
        with closing(self._batches()) as batches:
            for batch in batches:
                self.train_batch(batch)
                self.batches_done += 1
                self._progress(self._status(), self.batches_done, self._total_batches)
                # Stopping or saving in between would lose the gradients accumulated so far.
                if self.between_steps:
                    if stop.requested(self.team):
                        return True
                    if self.batch_of_epoch:  # at the end of an epoch validation comes first
                        self._save_if_due()
        return False

    def _batches(self) -> Generator[GraphBatch, None, None]:
        """This process's part of the batches that are left in the current epoch."""
        team = self.team
        share = self.batch_size // team.size
        loader = training_loader(
            self.data.train, self.config, share, self.seed, self.options.workers
        )
        loader.shard(team.rank, team.size).set_epoch(self.epoch)
        loader.resume_from(self.batch_of_epoch)
        yield from loader

    def train_batch(self, batch: GraphBatch) -> None:
        """Forward and backward pass of a batch, and the optimiser step if it is due."""
        team, training = self.team, self.config.training
        last = self.batch_of_epoch + 1 == self.batches_per_epoch
        step_due = last or (self.batch_of_epoch + 1) % training.accumulate == 0
        first = self.batch_of_epoch // training.accumulate * training.accumulate
        together = min(training.accumulate, self.batches_per_epoch - first)  # batches of this step

        seed_step(self.seed, self.batches_done * team.size + team.rank, self.fabric.device)
        batch = move_batch(batch, self.fabric.device)
        self.finite.begin(self.model)
        with self.fabric.no_backward_sync(self._forward, enabled=not step_due):
            loss = self._loss(batch)
            # DDP averages the gradients of the processes; the loss of the batch is their sum.
            self.fabric.backward(loss * team.size / together)
        numbers = [team.add_up(loss.detach())]
        if step_due:
            self.fabric.strategy.precision.unscale_gradients(self.optimizer)
            numbers.append(largest_gradient(self.model).to(loss.device))
        # The only point of a step where the CPU waits for a GPU.
        self.last_loss, *gradient = torch.stack(numbers).tolist()

        if math.isfinite(self.last_loss):
            self.loss_sum += self.last_loss
            self.losses += 1
        self._step_loss += self.last_loss
        if step_due:
            self._step(batch, gradient[0])

    def _loss(self, batch: GraphBatch) -> Tensor:
        """The loss of this process's part of a batch."""
        prediction, target = self._forward(batch), batch.y
        assert target is not None
        if batch.mask is not None:
            prediction, target = prediction[batch.mask], target[batch.mask]
        smoothing = self.config.training.label_smoothing
        return self.task.loss(prediction, target, smoothing, self.team.add_up)

    def _step(self, batch: GraphBatch, gradient: float) -> None:
        """Change the weights, unless loss or gradients are not finite."""
        training = self.config.training
        accepted = self.finite.accept(self.model, self._step_loss, gradient)
        self._step_loss = 0.0
        if self.finite.in_a_row >= training.skipped_steps:
            self._give_up(batch)
        set_learning_rate(self.optimizer, self.steps_done, self.total_steps, training)
        self._optimizer.step()  # also after a skipped step: the loss scaling of 16-mixed adapts
        self._optimizer.zero_grad()
        if accepted and self.average is not None:
            self.average.update(self.model)

    def _give_up(self, batch: GraphBatch) -> None:
        epoch, number = self.epoch + 1, self.batch_of_epoch + 1
        path = self.lock.folder / BATCH
        if self.team.leads:  # with several processes, the leader's part of the batch
            details = {"epoch": epoch, "batch": number, "seed": self.seed, "loss": self.last_loss}
            save_batch(batch, path, details)
        raise NotFinite(
            f"Training stopped in epoch {epoch}, batch {number}, after {self.finite.in_a_row} "
            "steps in a row whose loss or gradients are not finite or too large (last loss: "
            f"{self.last_loss:g}). The batch was saved to {path}. Try a smaller "
            "training.learning_rate, or scale down targets and features."
        )

    def _end_epoch(self, seconds: float | None) -> Row:
        """Validate, remember the best weights, and record the epoch."""
        training, epoch = self.config.training, self.epoch
        due = epoch % self.config.evaluation.every == 0 or epoch == training.epochs
        metric = None
        if self.data.val is not None and due:
            applied = self.average.applied(self.model) if self.average else nullcontext()
            with applied:
                metric = self.team.share(self._validate() if self.team.leads else None)
                if self.best is not None:
                    self.best.update(self.model, epoch, metric)
        graphs = self.batch_size * self.batches_per_epoch
        row: Row = {
            "epoch": epoch,
            "step": self.steps_done,
            "learning_rate": set_learning_rate(
                self.optimizer, self.steps_done, self.total_steps, training
            ),
            "train_loss": self.mean_loss,
            "val_metric": metric,
            "seconds": None if seconds is None else round(seconds, 4),
            "graphs_per_second": None if seconds is None else round(graphs / seconds, 1),
            "peak_memory_mb": peak_memory_mb(self.fabric.device),
            "skipped_steps": self.finite.skipped,  # since the start
        }
        self.record.rows.append(row)
        if self.team.leads:
            self.record.write()
            logger.debug(self._status())
        self.loss_sum, self.losses = 0.0, 0
        return row

    def _validate(self) -> float:
        """Score the validation set as in the final evaluation, but with one rewiring.

        Batch norms first collect statistics of the training set, and forget them afterwards.
        """
        collect(
            self.model,
            self.data.train,
            self.config,
            self.seed,
            workers=self.options.workers,
            quick=True,
        )
        metric = validate(
            self.model, self.data.val, self.config, self.epoch, self.seed, self.options.workers
        )
        reset_statistics(self.model)
        self.model.train()
        return metric

    def use_final_weights(self) -> None:
        """Load the final weights into the model: the best, averaged or last ones."""
        if self.best is not None and self.best.weights:
            self.best.copy_to(self.model)
        elif self.average is not None:
            self.average.copy_to(self.model)

    # ------------------------------------------------------ progress and checkpoints

    @property
    def _total_batches(self) -> int:
        return self.config.training.epochs * self.batches_per_epoch

    def _status(self) -> str:
        """Current state of training, for a progress bar."""
        parts = [f"Training · epoch {self.epoch}"]
        if self.mean_loss is not None:
            parts.append(f"loss {self.mean_loss:.4f}")
        if self.record.rows:
            row = self.record.rows[-1]
            if row["val_metric"] is not None:
                parts.append(f"val {self.config.task.metric} {row['val_metric']:.4f}")
            if row["graphs_per_second"] is not None:
                parts.append(f"{row['graphs_per_second']:.0f} graphs/s")
        return " · ".join(parts)

    def _save_if_due(self) -> None:
        minutes = self.config.training.checkpoint_minutes
        if self.team.any(time.monotonic() - self._saved_at >= 60 * minutes):
            self.save()

    def save(self) -> None:
        """Write a checkpoint, unless the last one is of the same batch."""
        if self.batches_done == self._saved_batches:
            return
        self.lock.check()
        check_weights(self.model, self.lock.folder / FOLDER)
        if self.team.leads:
            write_checkpoint(self.lock.folder / FOLDER, self.batches_done, self.state_dict())
        self._saved_at, self._saved_batches = time.monotonic(), self.batches_done

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume, and the run that the checkpoint belongs to."""
        return {
            "grass_gnn": {
                "batches_done": self.batches_done,
                "loss_sum": self.loss_sum,
                "losses": self.losses,
                "seed": self.seed,
                "config": self.config.model_dump_json(),
                "data": self.data.fingerprint.hash,
                "threads": torch.get_num_threads(),
            },
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "finite": self.finite.state_dict(),
            "best": None if self.best is None else self.best.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
        }

    def load_state_dict(self, checkpoint: dict[str, Any]) -> None:
        """Continue from a checkpoint.

        Raises:
            GrassError: It belongs to another run.
        """
        state = checkpoint["grass_gnn"]
        self.batches_done = state["batches_done"]
        # Compared as a configuration: settings that are newer than the checkpoint have a default.
        config = GRASSConfig.from_dict(json.loads(state["config"]), "the checkpoint")
        for what, there, here in (
            ("seed", state["seed"], self.seed),
            ("configuration", config, self._with_schedule_of(config)),
            ("data", state["data"], self.data.fingerprint.hash),
        ):
            if there != here:
                raise GrassError(
                    f"The {what} is not that of the checkpoint: resume with the same {what}, "
                    "or choose another --out."
                )
        threads = torch.get_num_threads()
        if state.get("threads", threads) != threads:  # not recorded in checkpoints of version 0.1
            logger.warning(
                "The run was started with %d threads and is resumed with %d: rounding depends "
                "on this, so the result differs slightly from that of an uninterrupted run.",
                state["threads"],
                threads,
            )
        self.loss_sum = state["loss_sum"]
        self.losses = state.get("losses", self.batch_of_epoch)
        self.model.load_state_dict(checkpoint["model"])
        self._restored = {name: checkpoint[name] for name in ("optimizer", "precision")}
        self.finite.load_state_dict(checkpoint["finite"])
        if self.best is not None and checkpoint["best"] is not None:
            self.best.load_state_dict(checkpoint["best"])
        if self.average is not None and checkpoint["average"] is not None:
            self.average.load_state_dict(checkpoint["average"])
        self.record.read(self.epoch)

    def _with_schedule_of(self, earlier: GRASSConfig) -> GRASSConfig:
        """This run's configuration with the schedule of a checkpoint, if they agree so far.

        A run can therefore be resumed with another number of epochs until its learning rate decays.
        """
        here, there = self.config.training, earlier.training
        if not same_schedule(self.steps_done, self.steps_per_epoch, here, there):
            return self.config
        schedule = {name: getattr(there, name) for name in SCHEDULE}
        training = here.model_copy(update=schedule)
        return self.config.model_copy(update={"training": training})


def seed_step(seed: int, step: int, device: torch.device) -> None:
    """Seed PyTorch's generators for one step."""
    own = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + 1) % 2**63
    if device.type == "cpu":
        torch.default_generator.manual_seed(own)  # seeding absent devices as well is slow
    else:
        torch.manual_seed(own)

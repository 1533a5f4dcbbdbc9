"""One run, from a configuration and its data to a folder that holds everything."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import tomli_w
import torch
from lightning.pytorch import Trainer
from rich.console import Console
from torch import nn

from grass_gnn.baselines import Baseline
from grass_gnn.config import GRASSConfig
from grass_gnn.data import PreparedData
from grass_gnn.errors import GrassError
from grass_gnn.evaluation import collect, evaluate, save_model, write_predictions
from grass_gnn.evaluation.protocol import TEST, VALIDATION, Evaluation
from grass_gnn.files import remove_leftovers, write_json, write_text
from grass_gnn.hardware import describe, peak_memory_mb
from grass_gnn.nn.model import GRASS
from grass_gnn.nn.norm import reset_statistics
from grass_gnn.progress import Progress, reporting
from grass_gnn.training.callbacks import EpochRecord, ProgressLine, StopOnSignal
from grass_gnn.training.checkpoint import Checkpointer, WholeCheckpointIO, read_checkpoint
from grass_gnn.training.loggers import make_logger
from grass_gnn.training.module import CountBatches, TrainingModule
from grass_gnn.training.patience import BestWeights


class Interrupted(GrassError):
    """The run was asked to stop; it can be resumed."""


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    model: nn.Module
    results: dict[str, Any]
    test: Evaluation


def make_model(config: GRASSConfig) -> GRASS | Baseline:
    """GRASS or a baseline, as the configuration says."""
    return GRASS(config) if config.model.architecture == "grass" else Baseline(config)


def build_model(config: GRASSConfig, data: PreparedData, seed: int) -> GRASS | Baseline:
    """A fresh model for some data: seeded weights, pooling scales of its training set."""
    torch.manual_seed(seed)
    model = make_model(config)
    nodes, edges, pairs = astuple(data.statistics)
    if isinstance(model, Baseline):
        model.mean_nodes.fill_(nodes)
    elif model.pooling is not None:
        model.pooling.set_scales(nodes, edges, config.rewiring.added_edges(nodes, pairs))
    return model


def check_folder(folder: Path, resume: bool) -> None:
    """Raise if a new run would overwrite one, or if there is none to resume."""
    if not resume and (folder / "checkpoints").exists():
        raise GrassError(f"{folder} holds a run already: use --resume, or another --out.")
    if resume and not folder.exists():
        raise GrassError(f"There is no run to resume in {folder}.")


def train(
    config: GRASSConfig,
    data: PreparedData,
    folder: str | Path,
    seed: int = 0,
    resume: bool = False,
    workers: int = 1,
    model: nn.Module | None = None,
    logger: str | None = None,
    console: Console | None = None,
    progress: Progress | None = None,
    card: Mapping[str, Any] | None = None,
) -> Run:
    """Train, evaluate by the paper's protocol, and leave a run folder.

    Args:
        config: The configuration.
        data: The prepared splits.
        folder: The run folder; it must be new, unless the run is resumed.
        seed: Of everything random.
        resume: Go on from the last checkpoint; the result is that of an undisturbed run.
        workers: Threads that prepare batches while the model computes.
        model: What to train; a GRASS of the configuration if not given.
        logger: ``"tensorboard"``, ``"mlflow"`` or ``"wandb"``, beside ``metrics.csv``.
        console: Where progress goes.
        progress: Called during the final evaluation; a bar on a terminal if not given.
        card: What else prediction needs to know, to be kept with the weights.

    Raises:
        Interrupted: The run was stopped by a signal; ``resume`` goes on.
    """
    folder, console = Path(folder), console or Console(stderr=True)
    check_folder(folder, resume)
    checkpoint = read_checkpoint(folder / "checkpoints") if resume else None
    remove_leftovers(folder)
    write_text(folder / "config.toml", config_toml(config, seed))

    model = model or build_model(config, data, seed)
    reset_statistics(model)
    module = TrainingModule(model, config, data.train, data.fingerprint.hash, seed, workers)
    record = EpochRecord(folder / "metrics.csv", data.val, config.evaluation.every)
    best = None
    if config.training.patience:
        best = BestWeights(record, config.task.metric, config.training.patience)
    if checkpoint is not None:
        module.resume(checkpoint)
        record.restore(module.epoch)
        if best is not None and best.state_key in checkpoint["callbacks"]:
            best.load_state_dict(checkpoint["callbacks"][best.state_key])
    stop = StopOnSignal()
    started = time.perf_counter()
    if module.epoch < config.training.epochs and not (best and best.exhausted):
        fit(module, record, stop, folder, logger, console, best)
    if stop.received is not None:
        raise Interrupted(
            f"Stopped in epoch {module.epoch + 1} of {config.training.epochs}; "
            f"go on with --resume --out {folder}."
        )
    seconds = time.perf_counter() - started
    if best is not None:
        best.restore(model)
    with reporting(progress) as report:
        results, test = final_evaluation(module, data, folder, report)
    mean, deviation, count = record.epoch_seconds
    results["training"] = {
        "epochs": module.epoch,
        "best_epoch": best.epoch if best is not None else module.epoch,
        "epoch_seconds": {"mean": mean, "std": deviation, "epochs": count},
        "seconds": round(seconds, 2),
        "peak_memory_mb": peak_memory_mb(module.device),
    }
    results |= {"seed": seed, "data": describe_data(data), "hardware": describe()}
    if isinstance(model, GRASS):
        save_model(model, folder, seed=seed, data=describe_data(data), **(card or {}))
    write_json(folder / "results.json", results)
    return Run(folder, model, results, test)


def fit(
    module: TrainingModule,
    record: EpochRecord,
    stop: StopOnSignal,
    folder: Path,
    logger: str | None,
    console: Console,
    best: BestWeights | None = None,
) -> None:
    """Run Lightning over the epochs that are left."""
    training = module.run_config.training
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = Trainer(
        accelerator="auto",
        devices=1,
        max_epochs=training.epochs - module.epoch,
        precision=training.precision,
        accumulate_grad_batches=training.accumulate,
        callbacks=[
            CountBatches(),
            record,
            *([best] if best is not None else []),
            ProgressLine(record, module.run_config.task.metric, console),
            stop,
            Checkpointer(folder / "checkpoints", training.checkpoint_minutes),
        ],
        plugins=[WholeCheckpointIO()],
        logger=make_logger(logger, folder),
        reload_dataloaders_every_n_epochs=1,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        trainer.fit(module)


def final_evaluation(
    module: TrainingModule, data: PreparedData, folder: Path, progress: Progress
) -> tuple[dict[str, Any], Evaluation]:
    """Collect norm statistics, then score validation and test set, and keep the predictions."""
    model, config, seed = module.model, module.run_config, module.seed
    collect(model, data.train, config, seed, workers=module.workers, progress=progress)
    results: dict[str, Any] = {} if config.dataset is None else {"official": data.official}
    scores = {}
    for name, dataset, stream in (("val", data.val, VALIDATION), ("test", data.test, TEST)):
        scores[name], mean, spread = evaluate(
            model, dataset, config, seed, None, stream, module.workers, progress
        )
        if config.task.level == "graph":
            target = dataset.tensors["y"]
            write_predictions(folder / f"{name}_predictions.csv", target, mean, spread)
        results[name] = scores[name].to_dict()
    results["statistics_passes"] = config.evaluation.statistics_passes
    return results, scores["test"]


def describe_data(data: PreparedData) -> dict[str, Any]:
    """Which data a run saw, and what preparing them took."""
    return {
        "origin": data.origin,
        "fingerprint": data.fingerprint.to_dict(),
        "preparation_seconds": data.seconds,
        "prepared_bytes": data.bytes,
    }


def config_toml(config: GRASSConfig, seed: int) -> str:
    """The configuration as a file that ``train`` takes again."""
    values = config.model_dump(mode="json", exclude_none=True)
    return f"# grass-gnn train THIS_FILE --seed {seed}\n" + tomli_w.dumps(values)

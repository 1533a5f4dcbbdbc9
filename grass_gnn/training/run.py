"""One run, from a configuration and its data to a folder that holds everything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console
from torch import nn

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.prepare import PreparedData
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.protocol import (
    TEST,
    VALIDATION,
    Evaluation,
    collect,
    evaluate,
    write_predictions,
)
from grass_gnn.evaluation.trained import save_model
from grass_gnn.files import remove_leftovers, write_json, write_text
from grass_gnn.hardware import describe
from grass_gnn.locks import FolderLock, locked
from grass_gnn.nn.model import GRASS
from grass_gnn.nn.norm import reset_statistics
from grass_gnn.progress import Progress, reporting
from grass_gnn.training.build import build_model
from grass_gnn.training.checkpoint import FOLDER, read_checkpoint
from grass_gnn.training.distributed import join
from grass_gnn.training.finite import check_weights
from grass_gnn.training.fit import Besides, fit_from
from grass_gnn.training.follow import Outcome, Work, check_shares, follow
from grass_gnn.training.module import TrainingModule


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    model: nn.Module
    results: dict[str, Any]
    test: Evaluation


def check_folder(folder: Path, resume: bool) -> None:
    """Raise if a new run would overwrite one, or if there is none to resume."""
    if not resume and any((folder / name).exists() for name in (FOLDER, "results.json")):
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
    devices: int | str | None = None,
    nodes: int | None = None,
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
        devices: Processes on each machine, which share each batch; see :func:`join`.
        nodes: Machines.

    Raises:
        Interrupted: The run was stopped by a signal; ``resume`` goes on.
        LostProcess: Another process has ended; ``resume`` goes on.
    """
    folder, console = Path(folder), console or Console(stderr=True)
    with join(devices, nodes) as team:
        if not team.leads:
            model, outcome = follow(team, data, model)
            return Run(folder, model, outcome.results, outcome.test)
        check_shares(team, config, data.train)
        if model is not None and team.started_here:
            raise GrassError(
                "A model of one's own trains on several devices when torchrun starts the script."
            )
        check_folder(folder, resume)
        with team.noticing_loss(), locked(folder) as lock:
            check_folder(folder, resume)  # again: now nobody else can change it
            checkpoint = read_checkpoint(folder / FOLDER) if resume else None
            remove_leftovers(folder)
            write_text(folder / "config.toml", config_toml(config, seed))

            data_hash = data.fingerprint.hash
            team.meet()
            team.share(Work(folder, config, data.folder, data_hash, seed, workers, checkpoint))
            model = model or build_model(config, data, seed)
            reset_statistics(model)
            module = TrainingModule(model, config, data.train, data_hash, seed, workers, team)
            besides = Besides.of(config, data, lock)
            started = time.perf_counter()
            fit_from(checkpoint, module, besides, logger, console)
            seconds = time.perf_counter() - started
            if besides.best is not None:
                besides.best.restore(model)
            with reporting(progress) as report:
                results, test = final_evaluation(module, data, lock, report)
            results["training"] = besides.account(module, seconds)
            results |= {"seed": seed, "data": describe_data(data), "hardware": describe()}
            lock.check()
            if isinstance(model, GRASS):
                save_model(model, folder, seed=seed, data=describe_data(data), **(card or {}))
            write_json(folder / "results.json", results)
            weights = {name: value.cpu() for name, value in model.state_dict().items()}
            with suppress(RuntimeError):  # all is done, whether the others hear of it or not
                team.share(Outcome(results, test, weights))
            return Run(folder, model, results, test)


def final_evaluation(
    module: TrainingModule, data: PreparedData, lock: FolderLock, progress: Progress
) -> tuple[dict[str, Any], Evaluation]:
    """Collect norm statistics, then score validation and test set, and keep the predictions."""
    model, config, seed = module.model, module.run_config, module.seed
    collect(model, data.train, config, seed, workers=module.workers, progress=progress)
    check_weights(model, lock.folder / FOLDER)
    results: dict[str, Any] = {} if config.dataset is None else {"official": data.official}
    scores = {}
    for name, dataset, stream in (("val", data.val, VALIDATION), ("test", data.test, TEST)):
        scores[name], mean, spread = evaluate(
            model, dataset, config, seed, None, stream, module.workers, progress
        )
        if config.task.level == "graph":
            target = dataset.tensors["y"]
            lock.check()
            write_predictions(lock.folder / f"{name}_predictions.csv", target, mean, spread)
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
        **({"eigenpairs": data.eigenpairs} if data.eigenpairs else {}),
    }


def config_toml(config: GRASSConfig, seed: int) -> str:
    """The configuration as a file that ``train`` takes again."""
    values = config.model_dump(mode="json", exclude_none=True)
    return f"# grass-gnn train THIS_FILE --seed {seed}\n" + tomli_w.dumps(values)

"""One training run, from a configuration and its data to a run folder."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import tomli_w
from torch import nn

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.dataset import PackedDataset
from grass_gnn.data.packed.prepare import PreparedData, open_prepared
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.predictions import RowNames, write_predictions
from grass_gnn.evaluation.protocol import TEST, VALIDATION, Evaluation, collect, evaluate
from grass_gnn.evaluation.trained import save_model
from grass_gnn.files import (
    FolderLock,
    is_locked_here,
    locked,
    remove_leftovers,
    write_json,
    write_text,
)
from grass_gnn.hardware import describe, peak_memory_mb
from grass_gnn.nn.model import GRASS, build_model
from grass_gnn.nn.norm import reset_statistics
from grass_gnn.progress import Progress, reporting
from grass_gnn.training.distributed import Team, find_team, join
from grass_gnn.training.loop import TrainingLoop
from grass_gnn.training.optim import NotFinite, check_weights
from grass_gnn.training.options import RunOptions
from grass_gnn.training.record import FOLDER, read_checkpoint
from grass_gnn.training.signals import Interrupted

GRACE = 10  # seconds for a follower to report that the leader has ended

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    model: nn.Module
    results: dict[str, Any]
    test: Evaluation


def train(
    config: GRASSConfig,
    data: PreparedData,
    folder: str | Path,
    options: RunOptions | None = None,
    *,
    model: nn.Module | None = None,
    card: Mapping[str, Any] | None = None,
    names: Mapping[str, RowNames] | None = None,
    **deprecated: Any,
) -> Run:
    """Train, evaluate with the paper's protocol, and write a run folder.

    Args:
        config: The configuration.
        data: The prepared splits.
        folder: The run folder; it must be new, unless the run is resumed.
        options: Seed, device, processes, loggers, and whether to resume.
        model: The model to train; by default a new one of the configuration.
        card: Further entries of ``config.json``, which prediction needs.
        names: For the splits ``"val"`` and ``"test"``, names of the rows and columns of their files
            of predictions.
        deprecated: Options by keyword, as in earlier versions (``seed=3``); use ``options``.

    Raises:
        Interrupted: The run was stopped by a signal; it can be resumed.
        LostProcess: Another process has ended; the run can be resumed.
    """
    folder, options = Path(folder), _options(options, deprecated)
    with join(options.devices, options.nodes, options.device) as team:
        if not team.leads:
            model, outcome = follow(team, data, model)
            return Run(folder, model, outcome.results, outcome.test)
        check_shares(team, config, data.train)
        if type(model) not in (type(None), GRASS) and team.started_here:
            raise GrassError(
                "To train your own model on several devices, start the script with torchrun."
            )
        with team.noticing_loss(), run_folder(folder, options.resume) as lock:
            checkpoint = read_checkpoint(folder / FOLDER) if options.resume else None
            remove_leftovers(folder)
            team.meet()
            weights = None if model is None or checkpoint else model.state_dict()
            run = folder, config, data.folder, data.fingerprint.hash, options.seed, options.workers
            team.share(Work(*run, checkpoint, weights))
            model = model or build_model(config, data, options.seed)
            loop = _start(model, config, data, lock, options, team, checkpoint)
            start = (card or {}).get("start", {}).get("run")
            write_text(folder / "config.toml", config_toml(config, options.seed, start))
            started = time.perf_counter()
            loop.run()
            seconds = time.perf_counter() - started
            loop.use_final_weights()

            with reporting(options.progress) as progress:
                results, test = final_evaluation(loop, names or {}, progress)
            results["training"] = describe_training(loop, seconds)
            results |= {"seed": options.seed, "data": describe_data(data), "hardware": describe()}
            lock.check()
            if isinstance(model, GRASS):
                details = {"seed": options.seed, "data": describe_data(data), **(card or {})}
                save_model(model, folder, **details)
            write_json(folder / "results.json", results)
            final = {name: value.cpu() for name, value in model.state_dict().items()}
            with suppress(RuntimeError):  # everything is saved, even if the others have ended
                team.share(Outcome(results, test, final))
            return Run(folder, model, results, test)


def _options(options: RunOptions | None, deprecated: dict[str, Any]) -> RunOptions:
    """The options of a run, including keywords of earlier versions."""
    if isinstance(options, int):  # the seed was the fourth argument
        options, deprecated = None, {"seed": options, **deprecated}
    if not deprecated:
        return options or RunOptions()
    known = {field.name for field in fields(RunOptions)} | {"console"}
    if unknown := deprecated.keys() - known:
        raise TypeError(f"train() has no argument {', '.join(sorted(unknown))}")
    deprecated.pop("console", None)
    warnings.warn(
        "Pass options of a run as train(config, data, folder, RunOptions(seed=…, resume=…)).",
        DeprecationWarning,
        stacklevel=3,
    )
    return replace(options or RunOptions(), **deprecated)


def check_folder(folder: Path, resume: bool) -> None:
    """Raise if a new run would overwrite one, or if there is none to resume."""
    if not resume and any((folder / name).exists() for name in (FOLDER, "results.json")):
        raise GrassError(f"{folder} already contains a run: use --resume, or another --out.")
    if resume and not folder.exists():
        raise GrassError(f"There is no run to resume in {folder}.")
    for path in folder.iterdir() if resume else ():
        inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
        if path.is_symlink() and not path.is_dir() and not inside:
            raise GrassError(
                f"{path} is a link to a file elsewhere, which a resumed run would overwrite: "
                "replace it by the file itself, or remove it."
            )


@contextmanager
def run_folder(folder: Path, resume: bool) -> Iterator[FolderLock]:
    """Lock a run folder, after checking that it is free for this run.

    Nothing is checked if the folder is already locked, as by a caller that has written the data of
    the run to it.
    """
    first = not is_locked_here(folder)
    if first and resume:
        check_folder(folder, resume)  # before the lock creates the folder
    with locked(folder) as lock:
        if first:
            check_folder(folder, resume)
        yield lock


def check_shares(team: Team, config: GRASSConfig, dataset: PackedDataset) -> None:
    """Raise if the batches of a training set cannot be divided among the processes."""
    if team.size == 1:
        return
    if len(dataset) == 1:
        raise GrassError(
            "A single graph cannot be divided among processes: omit --devices and --nodes."
        )
    batch = min(config.training.batch_size, len(dataset))
    if batch % team.size:
        raise GrassError(
            f"Batches of {batch} graphs cannot be divided among {team.size} processes: "
            f"choose a training.batch_size that is a multiple of {team.size}."
        )


def _start(
    model: nn.Module,
    config: GRASSConfig,
    data: PreparedData,
    lock: FolderLock,
    options: RunOptions,
    team: Team,
    checkpoint: dict[str, Any] | None,
) -> TrainingLoop:
    reset_statistics(model)
    loop = TrainingLoop(model, config, data, lock, options, team)
    if checkpoint is not None:
        loop.load_state_dict(checkpoint)
    return loop


def final_evaluation(
    loop: TrainingLoop, names: Mapping[str, RowNames], progress: Progress
) -> tuple[dict[str, Any], Evaluation]:
    """Collect norm statistics, score validation and test set, and write their predictions."""
    model, config, data, seed = loop.model, loop.config, loop.data, loop.seed
    folder, workers = loop.lock.folder, loop.options.workers
    collect(model, data.train, config, seed, workers=workers, progress=progress)
    check_weights(model, folder / FOLDER)
    results: dict[str, Any] = {} if config.dataset is None else {"official": data.official}
    scores = {}
    for name, dataset, stream in (("val", data.val, VALIDATION), ("test", data.test, TEST)):
        scores[name], mean, spread = evaluate(model, dataset, config, seed, None, stream, workers)
        if config.task.level == "graph":
            target = dataset.tensors["y"]
            loop.lock.check()
            path = folder / f"{name}_predictions.csv"
            write_predictions(path, target, mean, spread, names.get(name))
        results[name] = scores[name].to_dict()
    results["statistics_passes"] = config.evaluation.statistics_passes
    return results, scores["test"]


def describe_training(loop: TrainingLoop, seconds: float) -> dict[str, Any]:
    """Epochs, times and memory of a run, for ``results.json``."""
    mean, deviation, count = loop.record.epoch_seconds
    return {
        "epochs": loop.epoch,
        "best_epoch": loop.best.epoch if loop.best is not None else loop.epoch,
        "epoch_seconds": {"mean": mean, "std": deviation, "epochs": count},
        "seconds": round(seconds, 2),
        "processes": loop.team.size,
        "skipped_steps": loop.finite.skipped,
        "peak_memory_mb": peak_memory_mb(loop.fabric.device),
    }


def describe_data(data: PreparedData) -> dict[str, Any]:
    """The data of a run, and the cost of preparing it."""
    return {
        "origin": data.origin,
        "fingerprint": data.fingerprint.to_dict(),
        "preparation_seconds": data.seconds,
        "prepared_bytes": data.bytes,
        **({"eigenpairs": data.eigenpairs} if data.eigenpairs else {}),
    }


def config_toml(config: GRASSConfig, seed: int, start: str | None = None) -> str:
    """The configuration as a file for ``grass-gnn train``, and the run that it started from."""
    values = config.model_dump(mode="json", exclude_none=True)
    comment = f"# grass-gnn train THIS_FILE --seed {seed}\n"
    if start is not None:
        comment += f"# Training started from the weights of {start}.\n"
    return comment + tomli_w.dumps(values)


# ------------------------------------------------------------ processes that do not lead


@dataclass(frozen=True)
class Work:
    """What the leader sends to the others at the start."""

    folder: Path  # of the run, for messages
    config: GRASSConfig
    data: Path  # the prepared data
    data_hash: str
    seed: int
    workers: int
    checkpoint: dict[str, Any] | None
    weights: dict[str, Any] | None  # of the model that is trained, unless it is a new one


@dataclass(frozen=True)
class Outcome:
    """What the leader sends to the others at the end."""

    results: dict[str, Any]
    test: Evaluation
    weights: dict[str, Any]


class LeadersLock(FolderLock):
    """The lock of the run folder in processes that do not lead: the leader holds it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self) -> None:
        """Do nothing: followers do not write to the folder."""


def follow(
    team: Team, data: PreparedData | None = None, model: nn.Module | None = None
) -> tuple[nn.Module, Outcome]:
    """Take part in the leader's run.

    Args:
        team: The processes.
        data: The leader's data; by default read from the leader's folder.
        model: A model like the leader's; by default a new one of the configuration.

    Raises:
        GrassError: As in the leader, or because the leader has ended.
    """
    with team.noticing_loss():
        team.meet()
        work: Work = team.share(None)  # type: ignore[assignment]
        data = data or open_prepared(work.data, work.config)
        if data.fingerprint.hash != work.data_hash:
            raise GrassError(f"Process {team.rank} has different data from the leader.")
        model = model or build_model(work.config, data, work.seed)
        if work.weights is not None:
            model.load_state_dict(work.weights)
        options = RunOptions(seed=work.seed, workers=work.workers)
        lock = LeadersLock(work.folder)
        _start(model, work.config, data, lock, options, team, work.checkpoint).run()
        outcome: Outcome = team.share(None)  # type: ignore[assignment]
    model.load_state_dict(outcome.weights)
    return model, outcome


def take_part(devices: int | str | None, nodes: int | None, device: str | None = None) -> bool:
    """Follow the leader; return False if this process is the leader."""
    if find_team(devices, nodes, device).leads:
        return False
    with join(devices, nodes, device) as team:
        try:
            follow(team)
        except (Interrupted, NotFinite):
            raise SystemExit(1) from None  # the leader prints the message
    return True


def follower() -> int:
    """Follow the process that started this one; the arguments are devices, nodes and device."""
    threading.Thread(target=_end_with_leader, daemon=True).start()
    try:
        take_part(sys.argv[1], int(sys.argv[2]), sys.argv[3] or None)
    except GrassError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


def _end_with_leader() -> None:
    os.read(sys.stdin.fileno(), 1)  # returns when the leader ends for any reason
    time.sleep(GRACE)
    os._exit(1)

"""What a process does that does not lead: it takes part in the steps, and writes nothing."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import nn

from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.dataset import PackedDataset
from grass_gnn.data.packed.prepare import PreparedData, open_prepared
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.protocol import Evaluation
from grass_gnn.locks import FolderLock
from grass_gnn.nn.norm import reset_statistics
from grass_gnn.training.build import build_model
from grass_gnn.training.distributed import Team, find_team, join
from grass_gnn.training.finite import NotFinite
from grass_gnn.training.fit import Besides, Interrupted, fit_from
from grass_gnn.training.module import TrainingModule

GRACE = 10  # seconds in which a process may say by itself that the leader is gone


@dataclass(frozen=True)
class Work:
    """What the leader tells the others at first."""

    folder: Path  # of the run, for messages
    config: GRASSConfig
    data: Path  # the prepared data
    data_hash: str
    seed: int
    workers: int
    checkpoint: dict[str, Any] | None


@dataclass(frozen=True)
class Outcome:
    """What the leader tells the others at last."""

    results: dict[str, Any]
    test: Evaluation
    weights: dict[str, Any]


class LeadersLock(FolderLock):
    """Stands for the lock of the run folder, which the leader has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self) -> None:
        """Nothing is written here."""


def check_shares(team: Team, config: GRASSConfig, dataset: PackedDataset) -> None:
    """Raise if the batches of a training set cannot be shared out among the processes."""
    if team.size == 1:
        return
    if len(dataset) == 1:
        raise GrassError(
            "A single graph cannot be shared out among processes: leave out --devices and --nodes."
        )
    batch = min(config.training.batch_size, len(dataset))
    if batch % team.size:
        raise GrassError(
            f"Batches of {batch} graphs cannot be shared out among {team.size} processes: "
            f"choose a training.batch_size that is a multiple of {team.size}."
        )


def follow(
    team: Team, data: PreparedData | None = None, model: nn.Module | None = None
) -> tuple[nn.Module, Outcome]:
    """Take part in the leader's run.

    Args:
        team: The processes.
        data: The same as the leader's; found where it has them if not given.
        model: Of the same kind as the leader's; one of the configuration if not given.

    Raises:
        GrassError: As in the leader, or because the leader is gone.
    """
    with team.noticing_loss():
        team.meet()
        work: Work = team.share(None)  # type: ignore[assignment]
        data = data or open_prepared(work.data, work.config)
        if data.fingerprint.hash != work.data_hash:
            raise GrassError(f"Process {team.rank} has other data than the leader.")
        model = model or build_model(work.config, data, work.seed)
        reset_statistics(model)
        module = TrainingModule(
            model, work.config, data.train, work.data_hash, work.seed, work.workers, team
        )
        besides = Besides.of(work.config, data, LeadersLock(work.folder))
        fit_from(work.checkpoint, module, besides, None, Console(quiet=True))
        outcome: Outcome = team.share(None)  # type: ignore[assignment]
    model.load_state_dict(outcome.weights)
    return model, outcome


def take_part(devices: int | str | None, nodes: int | None) -> bool:
    """Follow, unless this process leads; whether it did."""
    if find_team(devices, nodes).leads:
        return False
    with join(devices, nodes) as team:
        try:
            follow(team)
        except (Interrupted, NotFinite):
            raise SystemExit(1) from None  # the leader says so
    return True


def main() -> int:
    """Follow the process that started this one; the arguments are devices and nodes."""
    threading.Thread(target=_end_with_leader, daemon=True).start()
    try:
        take_part(sys.argv[1], int(sys.argv[2]))
    except GrassError as error:
        Console(stderr=True).print(f"Error: {error}", markup=False, highlight=False, soft_wrap=True)
        return 1
    return 0


def _end_with_leader() -> None:
    os.read(sys.stdin.fileno(), 1)  # until the leader ends, however it ends
    time.sleep(GRACE)
    os._exit(1)

"""What both processes of a pair do: several small trainings, one after the other.

torchrun --standalone --nproc-per-node=2 pair.py FOLDER COMMAND…
"""

import json
import math
import os
import signal
import sys
import warnings
from pathlib import Path

import torch
from small_runs import CASES, config, data

from grass_gnn import GrassError
from grass_gnn.cli import main
from grass_gnn.evaluation import protocol
from grass_gnn.ops import build
from grass_gnn.training.loop import TrainingLoop
from grass_gnn.training.options import RunOptions
from grass_gnn.training.run import train

RANK = int(os.environ["LOCAL_RANK"])


def run(folder: Path, case: str, name: str | None = None, resume: bool = False, **changes):
    chosen = config(case, **changes)
    options = RunOptions(seed=3, resume=resume, devices=2)
    return train(chosen, data(chosen, folder), folder / (name or case), options)


def losses(folder: Path) -> None:
    """The loss curve is that of one process."""
    for case in CASES:
        os.environ["GRASS_OPS"] = "" if case.endswith("fused") else "reference"
        if build.available() or not case.endswith("fused"):
            torch.save(run(folder, case).model.state_dict(), folder / f"{case}-{RANK}.pt")
    os.environ["GRASS_OPS"] = "reference"
    run(folder, "regression", "apart", training__synchronise=False)


def stopping(folder: Path) -> None:
    """The one that does not lead is asked to stop: both do, after the same batch; then go on."""
    original = TrainingLoop.train_batch

    def stop(self, batch):
        original(self, batch)
        if RANK == 1 and self.batches_done == 3:  # during the fourth batch
            os.kill(os.getpid(), signal.SIGTERM)

    TrainingLoop.train_batch = stop
    for case, name in (("removal", "stopped"), ("regression", "half")):
        try:
            run(folder, case, name)
        except GrassError as error:
            (folder / f"{name}-{RANK}.txt").write_text(str(error))
    TrainingLoop.train_batch = original
    run(folder, "removal", "stopped", resume=True)
    run(folder, "removal", "whole")


def bad_step(folder: Path) -> None:
    """A loss that is NaN in one process alone."""
    original = TrainingLoop._loss

    def loss(self, batch):
        bad = RANK == 1 and self.batches_done == 2
        return original(self, batch) * (math.nan if bad else 1.0)

    TrainingLoop._loss = loss
    found = run(folder, "removal", "bad")
    TrainingLoop._loss = original
    weights = torch.cat([p.detach().flatten() for p in found.model.parameters()])
    training = found.results["training"]
    (folder / f"bad-{RANK}.json").write_text(
        json.dumps({"skipped": training["skipped_steps"], "finite": bool(weights.isfinite().all())})
    )


def masks(folder: Path) -> None:
    """What each process draws in a step."""
    drawn = []
    original = TrainingLoop.train_batch

    def train_batch(self, batch):
        original(self, batch)
        drawn.append(int(torch.randint(2**62, ())))

    TrainingLoop.train_batch = train_batch
    run(folder, "removal", "masks", training__epochs=1)
    TrainingLoop.train_batch = original
    (folder / f"masks-{RANK}.json").write_text(json.dumps(drawn))


if __name__ == "__main__":
    warnings.simplefilter("error", FutureWarning)  # a user would see it in every run
    torch.set_num_threads(1)
    protocol.BOOTSTRAP = 2  # confidence intervals are not what is tried here
    place = Path(sys.argv[1])
    for part in (losses, stopping, masks, bad_step):
        part(place)
    sys.exit(main(sys.argv[2:]))  # a command in both processes, undisturbed

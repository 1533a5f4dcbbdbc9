"""What both processes of a pair do: several small trainings, one after the other.

LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=… python pair.py FOLDER     # and LOCAL_RANK=1
"""

import json
import math
import os
import signal
import sys
from pathlib import Path

import torch
from small_runs import CASES, config, data

from grass_gnn import GrassError
from grass_gnn.ops import build
from grass_gnn.training import module as training_module
from grass_gnn.training.module import CountBatches, TrainingModule
from grass_gnn.training.run import train

RANK = int(os.environ["LOCAL_RANK"])


def run(folder: Path, case: str, name: str | None = None, resume: bool = False, **changes):
    chosen = config(case, **changes)
    return train(
        chosen, data(chosen, folder), folder / (name or case), seed=3, resume=resume, devices=2
    )


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
    original = CountBatches.on_train_batch_end

    def stop(self, trainer, module, *args):
        original(self, trainer, module, *args)
        if RANK == 1 and module.batches_done == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    CountBatches.on_train_batch_end = stop
    for case, name in (("removal", "stopped"), ("regression", "half")):
        try:
            run(folder, case, name)
        except GrassError as error:
            (folder / f"{name}-{RANK}.txt").write_text(str(error))
    CountBatches.on_train_batch_end = original
    run(folder, "removal", "stopped", resume=True)
    run(folder, "removal", "whole")


def bad_step(folder: Path) -> None:
    """A loss that is NaN in one process alone."""
    original, loss = TrainingModule.training_step, training_module.task_loss

    def step(self, batch, number):
        bad = RANK == 1 and self.batches_done == 2
        factor = math.nan if bad else 1.0
        training_module.task_loss = lambda *given: loss(*given) * factor
        return original(self, batch, number)

    TrainingModule.training_step = step
    found = run(folder, "removal", "bad")
    weights = torch.cat([p.detach().flatten() for p in found.model.parameters()])
    training = found.results["training"]
    (folder / f"bad-{RANK}.json").write_text(
        json.dumps({"skipped": training["skipped_steps"], "finite": bool(weights.isfinite().all())})
    )


def masks(folder: Path) -> None:
    """What each process draws in a step."""
    drawn = []
    original = TrainingModule.training_step

    def step(self, batch, number):
        loss = original(self, batch, number)
        drawn.append(int(torch.randint(2**62, ())))
        return loss

    TrainingModule.training_step = step
    run(folder, "removal", "masks", training__epochs=1)
    TrainingModule.training_step = original
    (folder / f"masks-{RANK}.json").write_text(json.dumps(drawn))


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = Path(sys.argv[1])
    for part in (losses, stopping, masks, bad_step):
        part(place)

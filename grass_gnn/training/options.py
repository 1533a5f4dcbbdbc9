"""Options of a run that change how it is executed, not what it computes."""

from __future__ import annotations

from dataclasses import dataclass

from grass_gnn.progress import Progress


@dataclass(frozen=True)
class RunOptions:
    """How a run is executed: seed, device, processes, logging.

    Args:
        seed: Random seed.
        resume: Resume an interrupted run from its last checkpoint. On a CPU with the same number of
            threads, the result is identical to that of an uninterrupted run.
        device: Device to run on, such as ``"cuda:1"``; the GPU if there is one, otherwise the CPU.
        devices: Processes per machine that share each batch: a number or ``"auto"`` (one per GPU).
        nodes: Number of machines that share each batch.
        workers: Threads that prepare batches while the model computes.
        logger: ``"tensorboard"``, ``"mlflow"`` or ``"wandb"``, in addition to ``metrics.csv``.
        progress: Progress hook; by default a progress bar on a terminal.
    """

    seed: int = 0
    resume: bool = False
    device: str | None = None
    devices: int | str | None = None
    nodes: int | None = None
    workers: int = 1
    logger: str | None = None
    progress: Progress | None = None

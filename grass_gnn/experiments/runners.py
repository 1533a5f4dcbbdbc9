"""Run jobs in separate processes, so that peak memory can be measured and crashes are isolated."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from grass_gnn.errors import GrassError
from grass_gnn.experiments.grid import Backend
from grass_gnn.experiments.job import ERROR, RESULTS, Job, run_job
from grass_gnn.files import write_json, write_whole
from grass_gnn.training.signals import Interrupted, StopOnSignal

STOPPED = 75  # exit code of an interrupted run that can be resumed


def in_processes(jobs: Sequence[tuple[Job, Path]]) -> Iterator[Job]:
    """Run jobs one after the other, each in a new process.

    Raises:
        Interrupted: This process was asked to stop, and the run in progress has a checkpoint.
    """
    context = multiprocessing.get_context("spawn")  # nothing of this process's memory is inherited
    for job, folder in jobs:
        process = context.Process(target=_child, args=(job, folder))
        with _Forwarding(process) as stop:
            process.start()
            process.join()
        if stop.received or process.exitcode == STOPPED:
            raise Interrupted(f"Stopped during {job.name}; run the same command to resume.")
        if not (folder / RESULTS).is_file() and not (folder / ERROR).is_file():
            write_json(folder / ERROR, {**job.identity, "error": _ending(process.exitcode)})
        yield job


def _child(job: Job, folder: Path) -> None:
    os.setpgrp()  # Ctrl-C on a terminal reaches the parent only, which forwards it once
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.getLogger("grass_gnn").setLevel(logging.ERROR)  # the report describes the data
    try:
        run_job(job, folder)
    except (Interrupted, KeyboardInterrupt):
        sys.exit(STOPPED)


def _end_with_parent() -> None:
    """End with the parent process, so that no run continues after its grid was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(STOPPED)


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"Its process was ended by {name} (SIGKILL often means that memory ran out)."
    return f"Its process ended with exit code {code}."


class _Forwarding(StopOnSignal):
    """Forward SIGTERM and Ctrl-C to a run, which writes a checkpoint and stops."""

    def __init__(self, process: BaseProcess) -> None:
        super().__init__()
        self.process = process

    def _note(self, number: int, frame: Any) -> None:
        self.received = number
        if self.process.is_alive():
            self.process.terminate()


RETRIES = 3  # of a task whose machine or process was lost
Files = dict[str, bytes]


def on_cluster(address: str = "auto", cpus: float = 1, gpus: float = 0) -> Backend:
    """A backend that runs jobs as Ray tasks.

    The machines need this package and the data (in the same folder, or downloaded there before);
    they need no shared file system: a task sends its run folder back.

    Args:
        address: Address of the cluster; ``"auto"`` is the one that this machine belongs to,
            ``"local"`` a new one on this machine only.
        cpus: Number of cores of each run.
        gpus: Number of GPUs of each run.
    """
    try:
        import ray
    except ImportError:
        raise GrassError(
            "Clusters need Ray: install it with pip install 'grass-gnn[cluster]'."
        ) from None

    def backend(jobs: Sequence[tuple[Job, Path]]) -> Iterator[Job]:
        started = _connect(ray, address)
        # One run per process, so that its peak memory can be measured.
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES, max_calls=1)(_run)
        try:
            waiting = {task.remote(job): (job, folder) for job, folder in jobs}
            while waiting:
                (ready, *_), _ = ray.wait(list(waiting), num_returns=1)
                job, folder = waiting.pop(ready)
                try:
                    _write(ray.get(ready), folder)
                except ray.exceptions.RayError as error:
                    reason = str(error).strip().splitlines()[0]
                    told = f"Its worker was lost {RETRIES + 1} times: {reason}"
                    write_json(folder / ERROR, {**job.identity, "error": told})
                yield job
        finally:
            if started:
                ray.shutdown()

    return backend


def _connect(ray: Any, address: str) -> bool:
    """Connect to a cluster unless already connected; return whether it did."""
    if ray.is_initialized():
        return False
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except ConnectionError as error:
        reason = str(error).strip().splitlines()[0]
        raise GrassError(f"There is no Ray cluster at {address!r}: {reason}") from None
    return True


def _run(job: Job) -> Files:
    """Run a job in a temporary folder and return its files."""
    with tempfile.TemporaryDirectory(prefix="grass-gnn-") as name:
        folder = Path(name) / "run"
        run_job(job, folder)
        paths = (path for path in folder.rglob("*") if path.is_file())
        return {os.fspath(path.relative_to(folder)): path.read_bytes() for path in paths}


def _write(files: Files, folder: Path) -> None:
    """Write the files of a run; the one that marks it as finished comes last."""
    for old in folder.glob("*.json"):
        old.unlink()
    last = ("results.json", ERROR)
    for name in sorted(files, key=lambda name: (name in last, name)):
        with write_whole(folder / name) as temporary:
            temporary.write_bytes(files[name])

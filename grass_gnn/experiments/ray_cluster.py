"""The runs of a grid on a Ray cluster: one task each, on whichever machine has room."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from grass_gnn.errors import GrassError
from grass_gnn.experiments.grid import Backend
from grass_gnn.experiments.job import ERROR, Job, run_job
from grass_gnn.files import write_json, write_whole

RETRIES = 3  # of a task whose machine or process was lost
Files = dict[str, bytes]


def on_cluster(address: str = "auto", cpus: float = 1, gpus: float = 0) -> Backend:
    """A backend that does jobs as Ray tasks.

    The machines need this package and the data (in the same folder, or downloaded there before);
    they need no common file system: a task sends its run folder back.

    Args:
        address: Of the cluster; ``"auto"`` is the one that this machine belongs to, ``"local"`` a
            new one on this machine alone.
        cpus: Of each run.
        gpus: Of each run.
    """
    try:
        import ray
    except ImportError:
        raise GrassError(
            "Clusters need Ray: install it with pip install 'grass-gnn[cluster]'."
        ) from None

    def backend(jobs: Sequence[tuple[Job, Path]]) -> Iterator[Job]:
        started = _connect(ray, address)
        # A process does one run and ends, so that its peak memory is its own.
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
    """Join a cluster, unless this process has; whether it did."""
    if ray.is_initialized():
        return False
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except ConnectionError as error:
        reason = str(error).strip().splitlines()[0]
        raise GrassError(f"There is no Ray cluster at {address!r}: {reason}") from None
    return True


def _run(job: Job) -> Files:
    """The files of a run that was done in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="grass-gnn-") as name:
        folder = Path(name) / "run"
        run_job(job, folder)
        paths = (path for path in folder.rglob("*") if path.is_file())
        return {os.fspath(path.relative_to(folder)): path.read_bytes() for path in paths}


def _write(files: Files, folder: Path) -> None:
    """Put a run's files in place; the one that says that it is over comes last."""
    for old in folder.glob("*.json"):
        old.unlink()
    last = ("results.json", ERROR)
    for name in sorted(files, key=lambda name: (name in last, name)):
        with write_whole(folder / name) as temporary:
            temporary.write_bytes(files[name])

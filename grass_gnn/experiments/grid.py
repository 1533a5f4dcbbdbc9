"""A grid of runs: cells × seeds, each in its own folder, resumable at any time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grass_gnn.config import GRASSConfig
from grass_gnn.errors import GrassError
from grass_gnn.experiments.budget import Budget, epochs_within
from grass_gnn.experiments.catalogue import Experiment, experiment
from grass_gnn.experiments.job import (
    CARD,
    ERROR,
    RESULTS,
    Job,
    Source,
    run_job,
    state,
    using_threads,
)
from grass_gnn.files import locked, read_json, write_json

GRID = "grid.json"

# Runs jobs, each in its folder, in any order, and reports when one is done.
Backend = Callable[[Sequence[tuple[Job, Path]]], Iterator[Job]]


@dataclass(frozen=True)
class Advance:
    """A run of a grid has finished or failed."""

    job: Job
    error: str | None
    score: float | None
    done: int  # of this call
    total: int
    seconds_left: float


def here(jobs: Iterable[tuple[Job, Path]]) -> Iterator[Job]:
    """The simplest backend: run jobs one after the other in this process."""
    for job, folder in jobs:
        run_job(job, folder)
        yield job


class Grid:
    """The runs of an experiment within a budget, in a folder.

    Args:
        experiment: The experiment to run, possibly with only some of its cells.
        folder: Output folder; a folder with the same experiment is resumed.
        budget: The limits of each run.
        seeds: The seeds of each cell.
        source: Where the graphs come from.
        threads: Number of threads of each run.
    """

    def __init__(
        self,
        experiment: Experiment,
        folder: str | Path,
        budget: Budget,
        seeds: Sequence[int] = (0,),
        source: Source | None = None,
        threads: int | None = None,
    ) -> None:
        self.experiment, self.folder, self.budget = experiment, Path(folder), budget
        source = source or Source()
        self.jobs = [
            Job(experiment.name, cell, seed, budget, source, threads=threads)
            for seed in seeds
            for cell in experiment.cells.values()
        ]
        self._check()

    def _check(self) -> None:
        """Raise if the folder belongs to another grid, before anything is run."""
        for job in self.jobs:
            path = self.folder / job.place / CARD
            if path.is_file() and not _same(read_json(path), job.identity):
                raise GrassError(
                    f"{path.parent} contains a run with a different budget or settings: "
                    "choose another --out."
                )

    def state(self, job: Job) -> str:
        """State of a job."""
        return state(self.folder / job.place)

    @property
    def pending(self) -> list[Job]:
        """Unfinished jobs; failed ones are tried again."""
        return [job for job in self.jobs if self.state(job) != "finished"]

    def run(self, backend: Backend = here) -> Iterator[Advance]:
        """Run all unfinished jobs, and yield each one as it finishes or fails."""
        with locked(self.folder):
            budget = self.budget.to_dict()
            write_json(self.folder / GRID, {"experiment": self.experiment.name, "budget": budget})
            jobs = [self._planned(job) for job in self.pending]
            total, started = len(jobs), time.monotonic()
            ended = backend([(job, self.folder / job.place) for job in jobs])
            for done, job in enumerate(ended, 1):
                folder = self.folder / job.place
                error = read_json(folder / ERROR)["error"] if (folder / ERROR).is_file() else None
                score = None if error else read_json(folder / RESULTS)["test"]["mean"]
                left = (time.monotonic() - started) / done * (total - done)
                self.write_results()
                yield Advance(job, error, score, done, total, left)
            self.write_results()

    def _planned(self, job: Job) -> Job:
        """A job with the number of epochs that fit into the minutes, from timing the preset once.

        Rows of an ablation are compared at the same number of epochs, as in the paper.
        """
        if self.budget.minutes is None or self.experiment.equal_time:
            return job
        path = self.folder / "plan.json"
        plan = read_json(path) if path.is_file() else {}
        preset = job.cell.preset
        if preset not in plan:
            config = self.budget.apply(GRASSConfig.preset(preset))
            data = self.budget.limit(job.source.prepare(config))
            seconds = 60 * self.budget.minutes
            with using_threads(job.threads):  # those of the runs
                plan[preset] = epochs_within(config, data, self.folder / "plan", seconds)
            write_json(path, plan)
        return replace(job, epochs=plan[preset])

    def write_results(self) -> None:
        """Write ``results.json``: the results of all runs, without anything machine-dependent."""
        write_json(self.folder / RESULTS, list(collect_results(self.folder)))


def collect_results(folder: Path) -> Iterator[dict[str, Any]]:
    """Scores and errors of all runs below the folder of a grid, in order."""
    for path in sorted(folder.glob("*/seed-*")):
        status = state(path)
        if status == "failed":
            entry = read_json(path / ERROR)
            yield {**_identity(entry), "status": status, "error": entry["error"]}
        elif status == "finished":
            entry, results = read_json(path / CARD), read_json(path / RESULTS)
            yield {
                **_identity(entry),
                "status": status,
                "epochs": entry["epochs"],
                "parameters": entry["parameters"],
                "data": results["data"]["fingerprint"]["hash"],
                "official": results["official"],
                **{
                    split: {
                        key: results[split][key] for key in ("metric", "mean", "variance", "scores")
                    }
                    for split in ("val", "test")
                },
            }


def open_grid(folder: str | Path) -> tuple[Experiment, Budget]:
    """Read the experiment and budget of the grid in a folder."""
    values = read_json(Path(folder) / GRID)
    return experiment(values["experiment"]), Budget(**values["budget"])


def _identity(entry: dict[str, Any]) -> dict[str, Any]:
    names = ("experiment", "cell", "seed", "preset", "settings", "budget")
    return {name: entry[name] for name in names}


def _same(card: dict[str, Any], identity: dict[str, Any]) -> bool:
    # JSON has no tuples, and a budget's minutes may be 60 or 60.0.
    return all(card.get(key) == value for key, value in identity.items())

"""Tuning: many short trainings on a table, the settings of each chosen by what came before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grass_gnn.config import GRASSConfig
from grass_gnn.data import prepare
from grass_gnn.progress import Progress, reporting
from grass_gnn.workflow.dataset import read_tables
from grass_gnn.workflow.own_runs import DATA_FOLDER
from grass_gnn.workflow.plan import plan_table
from grass_gnn.workflow.search import open_study, require_optuna
from grass_gnn.workflow.study import Search, TrialResult

STUDY, BEST = "tune.db", "best.toml"


@dataclass(frozen=True)
class TuneResult:
    """All trials of a study, the best first, and the settings of the best."""

    metric: str
    trials: list[TrialResult]
    best: GRASSConfig | None
    file: Path
    interrupted: bool


def tune_table(
    path: str | Path,
    targets: Sequence[str],
    out: str | Path,
    *,
    trials: int = 30,
    minutes: float | None = None,
    storage: str | Path | None = None,
    study: str = "grass-gnn",
    file: str | Path | None = None,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    workers: int = 1,
    say: Callable[[str], None] = lambda sentence: None,
    progress: Progress | None = None,
    **reading: Any,
) -> TuneResult:
    """Search for the settings with the best validation; the test rows are never looked at.

    The first trial has the settings that ``train`` would use. A trial that is worse after an epoch
    than half of those before it were is ended. Called again, a study goes on where it stands.

    Args:
        path: The table.
        targets: Columns to learn.
        out: Folder of the encoded table, and of the study if it is a file.
        trials: How many the study is to have, with those it has already.
        minutes: No trial begins after so long.
        storage: A file, or the SQL URL of a database; in the folder if not given.
        study: Name of the study in it.
        file: The configuration to write for the best trial; in the folder if not given.
        config: Settings to start from; by the size of the data if not given.
        settings: Changes to them, by dotted name, which no trial changes again.
        seed: Of the search and of every training.
        workers: Threads that prepare batches.
        say: Told what was found, and how trials ended.
        progress: Told about reading and about trials; a bar on a terminal if not given.
        reading: What else :func:`read_tables` takes.
    """
    require_optuna()
    out = Path(out)
    file = Path(file) if file else out / BEST
    with reporting(progress) as report:
        data = read_tables(path, targets, seed=seed, progress=report, **reading)
    for sentence in data.said:
        say(sentence)
    base = plan_table(data, config, settings)
    prepared = prepare(data.splits, base, out / DATA_FOLDER, progress=progress)
    search = Search(prepared, base, dict(settings or {}), seed, workers)
    found = open_study(
        storage or out / STUDY,
        study,
        search.minimize,
        seed,
        max(1, base.training.epochs // 5),  # by then the learning rate has passed its peak
        {"data": prepared.fingerprint.hash, "settings": base.model_dump_json()},
    )
    with reporting(progress) as report:
        interrupted = search.run(found, trials, minutes, file, say, report)
    return TuneResult(
        base.task.metric, search.results(found), search.best(found), file, interrupted
    )

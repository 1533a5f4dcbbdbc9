"""What ``tune`` searches through, how it draws from it, and where a study is kept."""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w
from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console

from grass_gnn.api.fitting import DATA_FOLDER
from grass_gnn.api.settings import plan_table
from grass_gnn.config import GRASSConfig
from grass_gnn.data.packed.prepare import PreparedData, prepare
from grass_gnn.data.tables.dataset import read_tables
from grass_gnn.errors import GrassError, first_line
from grass_gnn.files import make_folder, write_text
from grass_gnn.locks import locked
from grass_gnn.progress import Progress, reporting
from grass_gnn.tasks import LOWER_IS_BETTER
from grass_gnn.training.build import build_model
from grass_gnn.training.callbacks import EpochRecord
from grass_gnn.training.fit import Besides, Interrupted, fit
from grass_gnn.training.module import TrainingModule

if TYPE_CHECKING:
    from optuna import Study, Trial

try:
    import optuna
    from optuna.samplers import BaseSampler, TPESampler
except ImportError:  # a sentence when a study is asked for, see require_optuna
    optuna = None  # type: ignore[assignment]
    BaseSampler = object  # type: ignore[assignment, misc]

_HEARTBEAT, _GRACE = 60, 180  # seconds: a trial that is silent for so long has died


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, in steps, or evenly over their logarithms."""

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def suggest(self, trial: Trial, name: str) -> float:
        """A number for a trial."""
        if isinstance(self.low, int):
            step = int(self.step or 1)
            return trial.suggest_int(name, self.low, int(self.high), step=step, log=self.log)
        return trial.suggest_float(name, self.low, self.high, step=self.step, log=self.log)

    def holds(self, value: float) -> bool:
        """Whether a number may come out."""
        steps = 0 if self.step is None else (value - self.low) / self.step
        return self.low <= value <= self.high and abs(steps - round(steps)) < 1e-9


def search_space(base: GRASSConfig, graphs: int, fixed: Mapping[str, Any]) -> dict[str, Range]:
    """Ranges by the name of their setting, but for settings that the user has fixed.

    Args:
        base: What trials start from.
        graphs: Number of training graphs.
        fixed: Settings that stay as they are.
    """
    space = {
        # How far a step goes decides more than all else; both optimisers' useful rates are here.
        "training.learning_rate": Range(1e-4, 5e-3, log=True),
        # Depth carries information around the graph, width holds it; time is the product of both.
        "model.layers": Range(4, 24, step=4),
        "model.dim": Range(16, 64, step=16),
        # How much each layer adds, which depth asks less of.
        "model.residual_scale": Range(0.1, 0.5, log=True),
        # GRASS's own: added edges (none is among them), and how many of all scores are dropped.
        "rewiring.degree": Range(0, 9, step=3),
        "model.edge_removal": Range(0.0, 0.4, step=0.1),
        # What keeps a model from learning small sets by heart.
        "training.weight_decay": Range(0.01, 1.0, log=True),
        # The noise of a step; large batches need enough graphs for several in an epoch.
        "training.batch_size": Range(8, max(8, min(128, graphs // 4)), log=True),
    }
    # Left out: the encoding, which would have to be computed for each trial, and the number of
    # epochs, of which more is better or early stopping ends them.
    if base.rewiring.kind not in ("regular", "non-regular") or base.rewiring.variant == "half":
        del space["rewiring.degree"]
    return {name: values for name, values in space.items() if name not in fixed}


def value_of(config: GRASSConfig, name: str) -> Any:
    """A setting by its dotted name."""
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


class SamplerByTrial(BaseSampler):
    """Optuna's TPE, seeded anew for each trial by its number.

    So a study that is continued draws what an undisturbed one would, and machines that work on one
    study at a time never draw the same.
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.number = seed, -1
        self.sampler = TPESampler(seed=seed)

    def _of(self, trial: Any) -> TPESampler:
        if trial.number != self.number:
            self.number = trial.number
            self.sampler = TPESampler(seed=(self.seed * 1_000_003 + trial.number) % 2**32)
        return self.sampler

    def infer_relative_search_space(self, study: Study, trial: Any) -> dict[str, Any]:
        """Settings that are drawn together."""
        return self._of(trial).infer_relative_search_space(study, trial)

    def sample_relative(self, study: Study, trial: Any, search_space: Any) -> dict[str, Any]:
        """Draw these."""
        return self._of(trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: Any, param_name: str, param_distribution: Any
    ) -> Any:
        """Draw another one."""
        return self._of(trial).sample_independent(study, trial, param_name, param_distribution)


def require_optuna() -> None:
    """Raise unless Optuna is installed."""
    if optuna is None:
        raise GrassError("Tuning needs Optuna: pip install 'grass-gnn[tune]'.")


def open_study(
    storage: str | Path, name: str, minimize: bool, seed: int, warmup: int, identity: dict[str, str]
) -> Study:
    """A new study, or one that is there already.

    Args:
        storage: A file (SQLite), or the SQL URL of a database that many machines share.
        name: Name of the study in it.
        minimize: Whether lower is better.
        seed: Of the sampler.
        warmup: Epochs before trials are compared and the worse half is ended.
        identity: What trials must have in common; a study with another one is refused.

    Raises:
        GrassError: The storage cannot be opened, or the study is about something else.
    """
    require_optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    url = str(storage) if "://" in str(storage) else f"sqlite:///{Path(storage).resolve()}"
    waiting = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else None
    try:
        if "://" not in str(storage):
            make_folder(Path(storage).parent)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a heartbeat is what Optuna calls experimental
            # Trials of a process that was killed are given up when it is silent for long.
            database = optuna.storages.RDBStorage(
                url, waiting, heartbeat_interval=_HEARTBEAT, grace_period=_GRACE
            )
        study = optuna.create_study(
            study_name=name,
            storage=database,
            load_if_exists=True,
            direction="minimize" if minimize else "maximize",
            sampler=SamplerByTrial(seed),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=warmup),
        )
    except Exception as error:  # whatever a database or its driver may say
        raise GrassError(f"The study {name!r} cannot be opened: {first_line(error)}.") from error
    for what, mine in identity.items():
        if study.user_attrs.get(what, mine) != mine:
            raise GrassError(
                f"The study {name!r} was made with other {what}: "
                "choose another --out, --storage or --study."
            )
        study.set_user_attr(what, mine)
    return study


if TYPE_CHECKING:
    from optuna import Trial


def train_trial(
    trial: Trial, config: GRASSConfig, data: PreparedData, seed: int = 0, workers: int = 1
) -> float:
    """The best validation score of a training.

    Raises:
        TrialPruned: Others were better by then.
        Interrupted: A signal asked to stop.
        GrassError: The training failed.
    """
    from optuna import TrialPruned

    with tempfile.TemporaryDirectory() as folder, locked(folder) as lock:
        besides = Besides.of(config, data, lock)
        model = build_model(config, data, seed)
        module = TrialModule(model, config, data.train, data.fingerprint.hash, seed, workers)
        module.watch = WatchTrial(trial, besides.record)
        fit(module, besides, None, Console(file=io.StringIO()))
    rows = besides.record.rows
    trial.set_user_attr("epochs", len(rows))
    scores = [row["val_metric"] for row in rows if _is_number(row["val_metric"])]
    if not scores:
        raise GrassError("The validation rows cannot be scored: there may be too few of them.")
    if module.watch.pruned:
        raise TrialPruned
    return min(scores) if config.task.metric in LOWER_IS_BETTER else max(scores)


class TrialModule(TrainingModule):
    """A training that a trial watches."""

    watch: WatchTrial

    def configure_callbacks(self) -> list[Callback]:
        """What Lightning adds to the trainer's callbacks, behind them."""
        return [self.watch]


class WatchTrial(Callback):
    """Reports every validation to a trial, and ends a training that is not worth going on with."""

    def __init__(self, trial: Trial, record: EpochRecord) -> None:
        self.trial, self.record, self.pruned = trial, record, False

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the newest row of the record."""
        module: Any = pl_module
        if module.batches_done % module.batches_per_epoch:  # stopped in the middle of an epoch
            return
        row = self.record.rows[-1] if self.record.rows else None
        if row is None or row["epoch"] != module.epoch or not _is_number(row["val_metric"]):
            return
        self.trial.report(row["val_metric"], row["epoch"])
        if self.trial.should_prune():
            self.pruned = trainer.should_stop = True


def _is_number(value: float | None) -> bool:
    return value is not None and value == value


if TYPE_CHECKING:
    from optuna import Study, Trial

_NOT_SETTINGS = {"dataset", "split", "input", "task"}  # what the data decide
_PROBLEM = "problem"  # of a trial: why it failed


@dataclass(frozen=True)
class TrialResult:
    """One finished training: its settings, and the best validation of its epochs."""

    number: int
    state: str  # complete, pruned or failed
    score: float | None
    epochs: int
    settings: dict[str, Any]
    problem: str = ""


@dataclass(frozen=True)
class Search:
    """Trainings on some data, with settings that a study chooses."""

    data: PreparedData
    base: GRASSConfig
    fixed: Mapping[str, Any]
    seed: int = 0
    workers: int = 1

    @property
    def minimize(self) -> bool:
        """Whether a lower score is better."""
        return self.base.task.metric in LOWER_IS_BETTER

    def run(
        self,
        study: Study,
        trials: int,
        minutes: float | None,
        file: Path,
        say: Callable[[str], None],
        progress: Progress,
    ) -> bool:
        """Work on a study until it has enough trials; returns whether a signal ended that before.

        A trial that fails is noted and does not stop the others.
        """
        import optuna

        space = search_space(self.base, len(self.data.train), self.fixed)
        defaults = {name: value_of(self.base, name) for name in space}
        first = {name: value for name, value in defaults.items() if space[name].holds(value)}
        if not self.results(study) and not any(_is_open(trial) for trial in study.trials):
            study.enqueue_trial(first)
        interrupted = False

        def objective(trial: Trial) -> float:
            nonlocal interrupted
            chosen = {name: values.suggest(trial, name) for name, values in space.items()}
            try:
                config = self.base.override(chosen)
                return train_trial(trial, config, self.data, self.seed, self.workers)
            except Interrupted:
                interrupted = True
                study.stop()
                raise
            except Exception as error:
                if not isinstance(error, optuna.TrialPruned):
                    trial.set_user_attr(_PROBLEM, f"{first_line(error)}.")
                raise

        def note(study: Study, trial: Any) -> None:
            results = self.results(study)
            if own := [one for one in results if one.number == trial.number]:
                say(_sentence(own[0], results[0], self.base.task.metric))
            if best := self.best(study):
                write_text(file, _toml(best, self.seed))
            progress("Trials", min(len(results), trials), trials)
            if len(results) >= trials:
                study.stop()

        if len(self.results(study)) >= trials:
            return False
        try:
            seconds = None if minutes is None else 60 * minutes
            study.optimize(objective, timeout=seconds, catch=(Exception,), callbacks=[note])
        except KeyboardInterrupt:  # between trainings; in one, it ends with its batch
            interrupted = True
        return interrupted

    def results(self, study: Study) -> list[TrialResult]:
        """Finished trials, the best first; those that were stopped or killed are left out."""
        found = []
        for trial in study.trials:
            state = trial.state.name.lower().replace("fail", "failed")
            problem = trial.user_attrs.get(_PROBLEM)
            if state in ("complete", "pruned") or (state == "failed" and problem is not None):
                scores = trial.intermediate_values.values()
                score = (min if self.minimize else max)(scores, default=None)
                epochs = trial.user_attrs.get("epochs", 0)
                found.append(
                    TrialResult(trial.number, state, score, epochs, trial.params, problem or "")
                )
        order = ("complete", "pruned", "failed")
        sign = 1 if self.minimize else -1
        return sorted(found, key=lambda one: (order.index(one.state), sign * (one.score or 0.0)))

    def best(self, study: Study) -> GRASSConfig | None:
        """The configuration of the best trial, if any was completed."""
        results = self.results(study)
        if not results or results[0].state != "complete":
            return None
        return self.base.override(results[0].settings)


def _is_open(trial: Any) -> bool:
    """Whether a trial is to come, or somebody is at it."""
    return trial.state.name in ("WAITING", "RUNNING")


def _sentence(own: TrialResult, best: TrialResult, metric: str) -> str:
    if own.state == "failed":
        return f"Trial {own.number} failed: {own.problem}"
    score = f"{metric} {own.score:.4g} in {own.epochs} epochs"
    if own.state == "pruned":
        return f"Trial {own.number}: {score}, ended early."
    return f"Trial {own.number}: {score}; the best is {best.score:.4g} (trial {best.number})."


def _toml(config: GRASSConfig, seed: int) -> str:
    values = config.model_dump(mode="json", exclude_none=True, exclude=_NOT_SETTINGS)
    return f"# grass-gnn train TABLE --config THIS_FILE --seed {seed}\n" + tomli_w.dumps(values)


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

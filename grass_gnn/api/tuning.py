"""Hyperparameter search with Optuna.

:func:`tune` reads and encodes a table once, opens a study (:func:`open_study`), and lets a
:class:`TrialRunner` train with the settings that the study draws from :func:`search_space`.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from grass_gnn.api.fitting import DATA_FOLDER, choose_table_config, table_options
from grass_gnn.api.options import SearchOptions
from grass_gnn.config import GRASSConfig, check_names, with_fields
from grass_gnn.config.names import flatten
from grass_gnn.data.packed.prepare import PreparedData, prepare
from grass_gnn.data.tables.dataset import read_tables
from grass_gnn.data.tables.spec import TableSpec
from grass_gnn.errors import GrassError, first_line
from grass_gnn.files import locked, make_folder, write_text
from grass_gnn.nn.model import build_model
from grass_gnn.progress import report_progress, reporting, silent
from grass_gnn.tasks import LOWER_IS_BETTER, TASKS
from grass_gnn.training.distributed import Team
from grass_gnn.training.loop import TrainingLoop
from grass_gnn.training.options import RunOptions
from grass_gnn.training.record import Row
from grass_gnn.training.signals import Interrupted

if TYPE_CHECKING:
    import optuna
    from optuna import Study, Trial
    from optuna.samplers import BaseSampler, TPESampler
else:
    try:
        import optuna
        from optuna.samplers import BaseSampler, TPESampler
    except ImportError:  # require_optuna raises an error when a study is opened
        optuna, BaseSampler = None, object

logger = logging.getLogger(__name__)

STUDY, BEST = "tune.db", "best.toml"
_HEARTBEAT, _GRACE = 60, 180  # seconds; a trial without a heartbeat for this long has died
_NOT_SETTINGS = {"dataset", "split", "input", "task"}  # sections that follow from the data
_CHOSEN = ("loss", "metric")  # of the task: these do not
_PROBLEM = "problem"  # attribute of a failed trial: the error message


@dataclass(frozen=True)
class TrialResult:
    """A finished trial: its settings and its best validation score."""

    number: int
    state: str  # complete, pruned or failed
    score: float | None
    epochs: int
    settings: dict[str, Any]
    problem: str = ""


@dataclass(frozen=True)
class TuneResult:
    """The trials of a study, best first, and the best configuration."""

    metric: str
    trials: list[TrialResult]
    best: GRASSConfig | None
    file: Path
    interrupted: bool


def tune(
    path: str | Path,
    targets: TableSpec | str | Sequence[str],
    out: str | Path,
    search: SearchOptions | None = None,
    options: RunOptions | None = None,
    *,
    config: GRASSConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    **fields: Any,
) -> TuneResult:
    """Search for the settings with the best validation score; the test set is never used.

    All trials train from scratch, and the first one uses the default settings for that. Trials that
    fall behind the median of the earlier ones are pruned. Calling it again continues the study.

    Args:
        path: The table.
        targets: Columns to predict, or a :class:`TableSpec`.
        out: Folder of the encoded table, and of the study by default.
        search: Number of trials, and where the study is stored.
        options: Seed, workers and progress hook.
        config: Configuration to start from; chosen by the size of the data by default.
        settings: Settings by dotted name that all trials share.
        **fields: Further fields of :class:`SearchOptions`, :class:`TableSpec` and
            :class:`RunOptions`.

    Example:
        >>> tune("own.csv", ["logS"], "runs/tune", trials=50).best  # doctest: +SKIP
    """
    require_optuna()
    check_names(fields, SearchOptions, TableSpec, RunOptions)
    search = with_fields(search or SearchOptions(), fields)
    others = {name: value for name, value in fields.items() if name not in vars(search)}
    spec, options = table_options(targets, options, others)
    out = Path(out)
    file = Path(search.file or out / BEST)
    with reporting(options.progress):
        data = read_tables(path, spec, options.seed)
    for sentence in data.summary:
        logger.info(sentence)
    base = choose_table_config(data, config, settings)
    prepared = prepare(data.splits, base, out / DATA_FOLDER, progress=options.progress)
    runner = TrialRunner(prepared, base, dict(settings or {}), options)
    study = open_study(
        search.storage or out / STUDY,
        search.study,
        runner.minimize,
        options.seed,
        max(1, base.training.epochs // 5),  # by then the learning rate has passed its peak
        {"data": prepared.fingerprint.hash, "settings": base.model_dump_json()},
    )
    with reporting(options.progress):
        interrupted = runner.run(study, search, file)
    metric = base.task.metric
    return TuneResult(metric, runner.results(study), runner.best(study), file, interrupted)


# --- What is searched ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, in steps or on a logarithmic scale."""

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def suggest(self, trial: Trial, name: str) -> float:
        """Let a trial draw a number."""
        if isinstance(self.low, int):
            step = int(self.step or 1)
            return trial.suggest_int(name, self.low, int(self.high), step=step, log=self.log)
        return trial.suggest_float(name, self.low, self.high, step=self.step, log=self.log)

    def contains(self, value: float) -> bool:
        """Whether a number can be drawn."""
        steps = 0 if self.step is None else (value - self.low) / self.step
        return self.low <= value <= self.high and abs(steps - round(steps)) < 1e-9


def search_space(base: GRASSConfig, graphs: int, fixed: Mapping[str, Any]) -> dict[str, Range]:
    """The range of each setting that is tuned.

    Args:
        base: The configuration that trials change.
        graphs: Number of training graphs.
        fixed: Settings that the user has fixed.
    """
    space = {
        # Matters most. The range covers the useful rates of both optimisers.
        "training.learning_rate": Range(1e-4, 5e-3, log=True),
        # Depth and width; a step costs time in proportion to their product.
        "model.layers": Range(4, 24, step=4),
        "model.dim": Range(16, 64, step=16),
        # Deeper networks need smaller residual updates.
        "model.residual_scale": Range(0.1, 0.5, log=True),
        # Added edges per node (including none), and the fraction of attention scores dropped.
        "rewiring.degree": Range(0, 9, step=3),
        "model.edge_removal": Range(0.0, 0.4, step=0.1),
        # Regularisation, mostly for small datasets.
        "training.weight_decay": Range(0.01, 1.0, log=True),
        # Gradient noise; an epoch should still have several batches.
        "training.batch_size": Range(8, max(8, min(128, graphs // 4)), log=True),
    }
    # Not tuned: the encoding, which would have to be computed again for each trial, and the number
    # of epochs, which early stopping takes care of.
    if base.rewiring.kind not in ("regular", "non-regular") or base.rewiring.variant == "half":
        del space["rewiring.degree"]
    return {name: values for name, values in space.items() if name not in fixed}


# --- The study ----------------------------------------------------------------------------------


def require_optuna() -> None:
    """Raise unless Optuna is installed."""
    if optuna is None:
        raise GrassError("Tuning needs Optuna: pip install 'grass-gnn[tune]'.")


def open_study(
    storage: str | Path, name: str, minimize: bool, seed: int, warmup: int, identity: dict[str, str]
) -> Study:
    """Create an Optuna study, or open an existing one.

    Args:
        storage: A file (SQLite), or the SQL URL of a database that several machines share.
        name: Name of the study.
        minimize: Whether lower scores are better.
        seed: Random seed of the sampler.
        warmup: Number of epochs before a trial can be pruned.
        identity: Data and settings that all trials must share.

    Raises:
        GrassError: The storage cannot be opened, or the study has another identity.
    """
    require_optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    url = str(storage) if "://" in str(storage) else f"sqlite:///{Path(storage).resolve()}"
    waiting = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else None
    try:
        if "://" not in str(storage):
            make_folder(Path(storage).parent)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna calls its heartbeat experimental
            # Trials of a killed process are abandoned when its heartbeat stops.
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
    except Exception as error:  # databases and drivers raise many kinds
        raise GrassError(f"The study {name!r} cannot be opened: {first_line(error)}.") from error
    for what, mine in identity.items():
        if study.user_attrs.get(what, mine) != mine:
            raise GrassError(
                f"The study {name!r} was created with different {what}: "
                "use another --out, --storage or --study."
            )
        study.set_user_attr(what, mine)
    return study


class SamplerByTrial(BaseSampler):
    """Optuna's TPE sampler, seeded by the number of each trial.

    A resumed study therefore draws the same settings as an uninterrupted one, and machines that
    share a study never draw the same settings.
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
        """The settings that are sampled jointly."""
        return self._of(trial).infer_relative_search_space(study, trial)

    def sample_relative(self, study: Study, trial: Any, search_space: Any) -> dict[str, Any]:
        """Sample them."""
        return self._of(trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: Any, param_name: str, param_distribution: Any
    ) -> Any:
        """Sample a single setting."""
        return self._of(trial).sample_independent(study, trial, param_name, param_distribution)


# --- The trials ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrialRunner:
    """Trains with the settings that a study suggests."""

    data: PreparedData
    base: GRASSConfig
    fixed: Mapping[str, Any]
    options: RunOptions

    @property
    def minimize(self) -> bool:
        """Whether a lower score is better."""
        return self.base.task.metric in LOWER_IS_BETTER

    def run(self, study: Study, options: SearchOptions, file: Path) -> bool:
        """Run trials until the study has enough of them; returns whether a signal stopped it.

        A failed trial is recorded and does not stop the others.
        """
        space = search_space(self.base, len(self.data.train), self.fixed)
        usual = dict(flatten(self.base.model_dump()))
        first = {name: usual[name] for name in space if space[name].contains(usual[name])}
        if not self.results(study) and not any(_is_open(trial) for trial in study.trials):
            study.enqueue_trial(first)
        interrupted = False

        def objective(trial: Trial) -> float:
            nonlocal interrupted
            chosen = {name: values.suggest(trial, name) for name, values in space.items()}
            try:
                config = self.base.override(chosen)
                return train_trial(trial, config, self.data, self.options)
            except Interrupted:
                interrupted = True
                study.stop()
                raise
            except Exception as error:
                if not isinstance(error, optuna.TrialPruned):
                    trial.set_user_attr(_PROBLEM, f"{first_line(error)}.")
                raise

        def record(study: Study, trial: Any) -> None:
            results = self.results(study)
            if own := [one for one in results if one.number == trial.number]:
                logger.info(_sentence(own[0], results[0], self.base.task.metric))
            if best := self.best(study):
                write_text(file, _toml(best, self.options.seed))
            report_progress("Trials", min(len(results), options.trials), options.trials)
            if len(results) >= options.trials:
                study.stop()

        if len(self.results(study)) >= options.trials:
            return False
        try:
            seconds = None if options.minutes is None else 60 * options.minutes
            study.optimize(objective, timeout=seconds, catch=(Exception,), callbacks=[record])
        except KeyboardInterrupt:  # between trainings; a training stops after its current batch
            interrupted = True
        return interrupted

    def results(self, study: Study) -> list[TrialResult]:
        """The finished trials, best first, without those that were stopped or killed."""
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
        """The configuration of the best completed trial, if there is one."""
        results = self.results(study)
        if not results or results[0].state != "complete":
            return None
        return self.base.override(results[0].settings)


def train_trial(
    trial: Trial, config: GRASSConfig, data: PreparedData, options: RunOptions
) -> float:
    """Train with the settings of a trial and return its best validation score.

    Raises:
        TrialPruned: The trial fell behind the others.
        Interrupted: A signal stopped the training.
        GrassError: The training failed.
    """
    from optuna import TrialPruned

    pruned = False

    def report(row: Row) -> bool:
        """Report the score of an epoch to the trial; whether the trial is pruned."""
        nonlocal pruned
        if _is_number(row["val_metric"]):
            trial.report(row["val_metric"], row["epoch"])
            pruned = trial.should_prune()
        return pruned

    with tempfile.TemporaryDirectory() as folder, locked(folder) as lock:
        model = build_model(config, data, options.seed)
        quiet = replace(options, progress=silent)
        loop = TrainingLoop(model, config, data, lock, quiet, Team(device=options.device))
        loop.run(report)
    rows = loop.record.rows
    trial.set_user_attr("epochs", len(rows))
    scores = [row["val_metric"] for row in rows if _is_number(row["val_metric"])]
    if not scores:
        raise GrassError("The validation set cannot be scored: it may be too small.")
    if pruned:
        raise TrialPruned
    return min(scores) if config.task.metric in LOWER_IS_BETTER else max(scores)


def _is_number(value: float | None) -> bool:
    return value is not None and value == value


def _is_open(trial: Any) -> bool:
    """Whether a trial is waiting or running."""
    return trial.state.name in ("WAITING", "RUNNING")


def _sentence(own: TrialResult, best: TrialResult, metric: str) -> str:
    if own.state == "failed":
        return f"Trial {own.number} failed: {own.problem}"
    score = f"{metric} {own.score:.4g} in {own.epochs} epochs"
    if own.state == "pruned":
        return f"Trial {own.number}: {score}, pruned."
    return f"Trial {own.number}: {score}; the best is {best.score:.4g} (trial {best.number})."


def _toml(config: GRASSConfig, seed: int) -> str:
    values = config.model_dump(mode="json", exclude_none=True, exclude=_NOT_SETTINGS)
    task = config.task.model_dump()
    usual = TASKS[config.task.kind].default_settings(config.task.outputs)
    if any(task[name] != usual[name] for name in _CHOSEN):
        # A loss is only valid together with its kind of task and the number of outputs.
        values["task"] = {name: task[name] for name in ("kind", "outputs", *_CHOSEN)}
    return f"# grass-gnn train TABLE --config THIS_FILE --seed {seed}\n" + tomli_w.dumps(values)

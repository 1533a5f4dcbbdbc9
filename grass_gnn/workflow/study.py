"""A study at work: trials with settings that it chooses, what they came to, and the best so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from grass_gnn.config import GRASSConfig
from grass_gnn.data import PreparedData
from grass_gnn.errors import first_line
from grass_gnn.evaluation import LOWER_IS_BETTER
from grass_gnn.files import write_text
from grass_gnn.progress import Progress
from grass_gnn.training import Interrupted
from grass_gnn.workflow.search import search_space, value_of
from grass_gnn.workflow.trial import train_trial

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

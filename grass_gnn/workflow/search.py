"""What ``tune`` searches through, how it draws from it, and where a study is kept."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grass_gnn.config import GRASSConfig
from grass_gnn.errors import GrassError, first_line
from grass_gnn.files import make_folder

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

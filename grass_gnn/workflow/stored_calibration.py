"""A calibration as it is kept in a run folder, found again and applied to predictions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, ValidationError
from torch import Tensor

from grass_gnn.config import Section, TaskConfig
from grass_gnn.errors import GrassError
from grass_gnn.evaluation import TrainedModel
from grass_gnn.evaluation.calibration import with_temperature
from grass_gnn.files import read_json, write_json

ALONE, TOGETHER = "calibration", "calibration_ensemble"  # .json and .png


class SpreadCalibration(Section):
    """Of one target of a regression, how far its standard deviations can be trusted."""

    target: str
    scale: float = Field(gt=0)  # √(mean of ((true − mean) / std)²): std × scale is calibrated
    rows: int
    without_spread: int  # rows that every rewiring gives the same value: they count for nothing
    rank_correlation: float | None  # Spearman's ρ of std and absolute error
    area: float  # miscalibration area, as predicted
    scaled_area: float
    within: tuple[float, float]  # share of errors within one and two std, as predicted
    scaled_within: tuple[float, float]


class ProbabilityCalibration(Section):
    """How far the probabilities of a classification can be trusted."""

    temperature: float = Field(gt=0)  # what their logits are divided by
    rows: int
    error: float  # expected calibration error, as predicted
    scaled_error: float
    log_loss: float
    scaled_log_loss: float


class Calibration(Section):
    """What was found about a model or an ensemble on rows that it was not trained on."""

    kind: str  # of the task
    models: list[str]  # checksums of the weights that it holds for
    rewirings: int
    rows: int
    source: str  # of the rows
    targets: list[SpreadCalibration] = Field(default_factory=list)
    probabilities: ProbabilityCalibration | None = None

    def fits(self, task: TaskConfig) -> bool:
        """Whether it says of each output what is to be known."""
        regression = self.kind == "regression"
        known = len(self.targets) == task.outputs if regression else self.probabilities is not None
        return self.kind == task.kind and known

    def mean(self, mean: Tensor) -> Tensor:
        """Calibrated means or probabilities [M, outputs]."""
        if self.probabilities is None:
            return mean
        return with_temperature(self.kind, mean, self.probabilities.temperature)

    def std(self, std: Tensor) -> Tensor:
        """Calibrated standard deviations [M, outputs]; those of probabilities stay as they are."""
        return std * std.new_tensor([one.scale for one in self.targets]) if self.targets else std

    @property
    def factors(self) -> str:
        """What is changed, in a few words."""
        if self.probabilities is not None:
            return f"probabilities calibrated by temperature {self.probabilities.temperature:.3g}"
        shown = ", ".join(f"× {one.scale:.3g} for {one.target}" for one in self.targets[:3])
        more = f", … ({len(self.targets)} targets)" if len(self.targets) > 3 else ""
        return f"standard deviations calibrated: {shown}{more}"

    def save(self, folder: Path) -> Path:
        """Write it into a run folder."""
        path = folder / f"{file_name(self.models)}.json"
        write_json(path, self.model_dump(mode="json"))
        return path


def checksums(models: Sequence[TrainedModel]) -> list[str]:
    """What tells the weights of models apart, in one order."""
    return sorted(str(model.card.get("weights_sha256")) for model in models)


def file_name(models: Sequence[object]) -> str:
    """Name of the files, without ending, about one model or several."""
    return ALONE if len(models) == 1 else TOGETHER


def find_calibration(models: Sequence[TrainedModel]) -> tuple[Calibration | None, str]:
    """The calibration that one of the run folders keeps of just these models, if there is one.

    Returns:
        It, and the reason, if there is one that does not fit.
    """
    reason = ""
    for model in models:
        path = (model.folder or Path()) / f"{file_name(models)}.json"
        if model.folder is None or not path.is_file():
            continue
        try:
            found = Calibration.model_validate(read_json(path))
        except ValidationError:
            found = None
        if found is None or not found.fits(model.config.task):
            raise GrassError(f"The file {path} is damaged: calibrate again, or remove it.")
        if found.models == checksums(models):
            return found, ""
        reason = f"{path} is about other models, and not applied"
    return None, reason

"""The files of a run, as its report needs them."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from grass_gnn.evaluation.predictions import SavedPredictions
from grass_gnn.experiments.measured import RunRecord
from grass_gnn.files import read_json
from grass_gnn.tasks import make_task
from grass_gnn.uncertainty.calibration import ALONE, Calibration, checksums

SPLITS = {"train": "training", "val": "validation", "test": "test"}  # in texts


class RunReport:
    """The files of a run folder, read when needed.

    Args:
        folder: The run folder.
        name: Prefix of the names of tables and figures.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.run = RunRecord(folder)
        self.task = make_task(self.run.config.task)
        self.metric = self.task.title()

    @property
    def results(self) -> dict[str, Any]:
        """``results.json``."""
        return self.run.results

    @cached_property
    def card(self) -> dict[str, Any]:
        """``config.json``, which baselines do not have."""
        path = self.folder / "config.json"
        return read_json(path) if path.is_file() else {}

    @cached_property
    def targets(self) -> list[str]:
        """Names of the targets."""
        return list((self.card.get("table") or {}).get("targets") or [])

    @cached_property
    def classes(self) -> list[str]:
        """Names of the classes, if they have any."""
        table = self.card.get("table") or {}
        return list(table.get("classes") or self.card.get("classes") or [])

    @cached_property
    def calibration(self) -> Calibration | None:
        """``calibration.json``, if it belongs to this network and its forest."""
        path = self.folder / f"{ALONE}.json"
        if not path.is_file():
            return None
        try:
            found = Calibration.model_validate(read_json(path))
        except ValidationError:
            return None
        same = found.models == checksums([self])
        return found if same and found.fits(self.run.config.task) else None

    def predictions(self, split: str) -> SavedPredictions | None:
        """Predictions for a split, if the run saved them."""
        path = self.folder / f"{split}_predictions.csv"
        if not path.is_file():
            return None
        found = SavedPredictions.read(path, self.task)
        outputs = found.mean.shape[1] == self.task.outputs == found.std.shape[1]
        return found if len(found) and outputs else None

    def target_name(self, place: int, found: SavedPredictions) -> str:
        """Name of a target, from the table that the model was trained on."""
        names = self.targets or found.targets
        name = names[place] if place < len(names) else f"target {place}"
        return re.sub(r"^target_(\d+)$", "target" if len(names) == 1 else r"target \1", name)

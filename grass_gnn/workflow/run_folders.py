"""Run folders as they are named on the command line: one model each, or those of all folds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from grass_gnn.errors import GrassError
from grass_gnn.evaluation import TrainedModel, load_model
from grass_gnn.files import read_json

FOLDS = "folds.csv"  # in the folder of a cross-validation: the fold of each row
CROSS_VALIDATION = "cross_validation.json"  # its summary, when all folds are done


def run_folders(folder: str | Path) -> list[Path]:
    """The folder of a run, or those of a cross-validation's folds."""
    folder = Path(folder)
    if (folder / CROSS_VALIDATION).is_file():
        summary = read_json(folder / CROSS_VALIDATION)
        runs = summary.get("runs") if isinstance(summary, dict) else None
        # Bare names: a summary of a stranger's leads nowhere else.
        if not isinstance(runs, list) or not all(re.fullmatch(r"fold-\d+", str(r)) for r in runs):
            raise GrassError(f"The file {folder / CROSS_VALIDATION} is damaged: it names no folds.")
        return [folder / run for run in runs]
    if (folder / FOLDS).is_file():
        raise GrassError(f"The cross-validation in {folder} is not finished: use --resume.")
    return [folder]


def load_models(folders: Sequence[str | Path]) -> list[TrainedModel]:
    """The models of run folders; that of a cross-validation stands for those of its folds."""
    return [load_model(run) for folder in folders for run in run_folders(folder)]

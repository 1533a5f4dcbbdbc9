"""Error bars of a finished run: calibrated on its validation rows, and checked on its test rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from grass_gnn.api.calibration import calibrate_models
from grass_gnn.data.tables.composition import Composition
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.predictions import RowNames, SavedPredictions, write_predictions
from grass_gnn.evaluation.run import find_data
from grass_gnn.evaluation.trained import load_model
from grass_gnn.files import write_json
from grass_gnn.progress import Progress
from grass_gnn.tasks import rank_correlation
from grass_gnn.training.run import Run
from grass_gnn.uncertainty.calibration import Calibration
from grass_gnn.uncertainty.ensembles import COVERAGE, Ensemble, Spread

logger = logging.getLogger(__name__)


def add_error_bars(
    run: Run,
    names: RowNames,
    molecules: Sequence[Composition],
    progress: Progress | None = None,
) -> Run:
    """Calibrate a run on molecules at the end of its training.

    The test predictions of a regression get calibrated standard deviations and intervals, and
    ``results.json`` says how many of the intervals contain the true value. A run that cannot be
    calibrated, because it has too few validation rows, stays as it is.

    Args:
        run: The finished run.
        names: Names of the rows and columns of its test predictions.
        molecules: What the test molecules are made of.
        progress: Progress hook; by default a progress bar on a terminal.
    """
    rewirings = run.results["test"]["rewirings"]
    try:
        models = [load_model(run.folder)]
        found = calibrate_models(
            models, [run.folder], rewirings=rewirings, plot=False, progress=progress
        )
    except GrassError as error:
        logger.info("No calibration: %s", error)
        return run
    if not found.targets:
        return run
    facts = _write_intervals(run.folder, found, names, molecules)
    results = {**run.results, "error_bars": facts}
    write_json(run.folder / "results.json", results)
    return replace(run, results=results)


def _write_intervals(
    folder: Path, calibration: Calibration, names: RowNames, molecules: Sequence[Composition]
) -> dict[str, Any]:
    """Write calibrated standard deviations and intervals of the test set.

    Returns:
        For ``results.json``: of each target, the share of true values within the intervals, their
        mean width, and Spearman's ρ of the standard deviation and the absolute error.
    """
    path, model = folder / "test_predictions.csv", load_model(folder, "cpu")
    ensemble = Ensemble([model], calibration)
    saved = SavedPredictions.read(path)
    mean, std = torch.from_numpy(saved.mean), torch.from_numpy(saved.std)
    reference = ensemble.similarity
    found = ensemble.with_error_bars(
        Spread(mean, std, std, torch.zeros_like(std)),
        [find_data(model).test],
        None if reference is None else reference.splits.get("test"),
    )
    _, found = ensemble.compare(molecules, found)
    ends = ensemble.interval(found)
    assert ends is not None  # the calibration has targets
    target = torch.from_numpy(saved.target)
    write_predictions(path, target, mean, found.std, names, ends)
    error = (target - mean).abs()
    facts: dict[str, Any] = {"coverage": COVERAGE, "targets": {}}
    for number, name in enumerate(names.targets):
        known = ~error[:, number].isnan()
        low, high, true = (part[known, number] for part in (*ends, target))
        inside = ((low <= true) & (true <= high)).double()
        own = found.std[known, number], error[known, number]
        facts["targets"][name] = {
            "rows": int(known.sum()),
            "inside": float(inside.mean()) if len(inside) else None,
            "width": float((high - low).mean()) if len(inside) else None,
            "rank_correlation": rank_correlation(*(part[:, None] for part in own)),
        }
    return facts

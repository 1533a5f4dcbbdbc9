"""Predictions in the report of a run: figures, and the rows with the largest errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grass_gnn.data.tables.molecules import MoleculeReader
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.errors import GrassError
from grass_gnn.evaluation.pictures import plain_molecule_svg
from grass_gnn.evaluation.predictions import SavedPredictions
from grass_gnn.report.figures import predicted_against_true
from grass_gnn.report.render import DrawnMolecule, Section
from grass_gnn.report.run_figures import (
    agreement_figure,
    coverage_figure,
    reliability_figure,
    residual_figure,
)
from grass_gnn.report.run_files import SPLITS, RunReport
from grass_gnn.report.svg import ReportFigure, picture
from grass_gnn.report.table import signed, with_spread
from grass_gnn.tasks import ProbabilityTask

WORST = 10  # number of molecules to draw
MOST_TARGETS = 4  # number of targets with charts


def predictions_introduction(report: RunReport) -> str:
    """What the error bars of the figures are."""
    if not _is_regression(report) or report.predictions("test") is None:
        return ""
    if report.calibration is not None:
        return (
            "Error bars are one standard deviation of the error, calibrated on the "
            f"{report.calibration.source}.{_coverage(report)}"
        )
    return (
        "Error bars are one standard deviation over rewirings. They are not calibrated: "
        "run grass-gnn calibrate to scale them to the size of the errors."
    )


def _coverage(report: RunReport) -> str:
    """How many test rows lie within their intervals, if the run has measured it."""
    facts = report.run.results.get("error_bars") or {}
    share = f"{100 * facts.get('coverage', 0):.0f} %"
    inside = [
        f"{100 * one['inside']:.0f} % of {one['rows']:,} test rows ({name})"
        for name, one in list(facts.get("targets", {}).items())[:MOST_TARGETS]
        if one["inside"] is not None
    ]
    return f" {share} intervals contain the true value of {', '.join(inside)}." if inside else ""


def _is_regression(report: RunReport) -> bool:
    return not report.task.predicts_probabilities


def _scale(report: RunReport, found: SavedPredictions, place: int) -> float | None:
    """The factor that calibrates the std of a target, unless the stored one is calibrated."""
    calibration = report.calibration
    if found.ends.size or calibration is None or not calibration.targets:
        return None
    return calibration.targets[place].scale


def prediction_figures(report: RunReport) -> list[ReportFigure]:
    """Predicted against true values, residuals and calibration for each target."""
    if not _is_regression(report) or report.predictions("test") is None:
        compared = predicted_against_true(report.name, report.run, report.classes)
        return [f for f in (compared, _reliability(report)) if f is not None]
    figures: list[ReportFigure | None] = []
    for place in range(min(report.task.outputs, MOST_TARGETS)):
        for split in ("test", "val"):
            found = report.predictions(split)
            if found is None:
                continue
            known = ~np.isnan(found.target[:, place])
            if not known.any():
                continue
            true, mean = found.target[known, place], found.mean[known, place]
            std, calibrated = found.std[known, place], found.ends.size > 0
            scale = _scale(report, found, place)
            name = f"{report.name}-{split}-{place}"
            target = report.target_name(place, found)
            figures.append(
                agreement_figure(name, target, SPLITS[split], true, mean, std * (scale or 1.0))
            )
            if split == "test":
                figures.append(residual_figure(name, target, SPLITS[split], true, mean))
                figures.append(coverage_figure(name, target, true - mean, std, scale, calibrated))
    return [figure for figure in figures if figure is not None]


def _reliability(report: RunReport) -> ReportFigure | None:
    found, task = report.predictions("test"), report.task
    if found is None or not isinstance(task, ProbabilityTask):
        return None
    calibration = report.calibration
    fitted = calibration.probabilities if calibration is not None else None
    temperature = None if fitted is None else fitted.temperature
    return reliability_figure(report.name, task, found.mean, found.target, temperature)


def worst_section(report: RunReport, prefix: str) -> Section:
    """The molecules, or graphs, of the test set with the largest errors."""
    title = f"{prefix}Largest errors"
    empty = Section(f"{report.name}-worst", title)
    found = report.predictions("test")
    if found is None:
        return empty
    error = _errors(report, found)
    order = [i for i in np.argsort(-error, kind="stable")[:WORST].tolist() if error[i] >= 0]
    smiles = [found.smiles[place] if found.smiles else "" for place in order]
    pictures = _pictures(smiles) if found.smiles else smiles
    molecules = [
        DrawnMolecule(_row_name(found, place), text, _values(report, found, place), picture)
        for place, text, picture in zip(order, smiles, pictures, strict=True)
    ]
    what = "molecules" if found.smiles else "graphs"
    how = "" if _is_regression(report) and report.task.outputs == 1 else f" {_ordering(report)}"
    told = f"The {len(order)} test {what} with the largest errors{how}, out of {len(found):,}."
    return Section(empty.name, title, told, molecules=molecules)


def _ordering(report: RunReport) -> str:
    if _is_regression(report):
        return "(mean error over targets, each relative to its standard deviation)"
    if report.task.classes is not None:
        return "(lowest probability of the true class)"
    return "(largest difference between label and probability)"


def _errors(report: RunReport, found: SavedPredictions) -> np.ndarray:
    """Error of each prediction [M]; −1 where there is no target."""
    if report.task.classes is not None:
        classes = found.target[:, 0]
        known = ~np.isnan(classes)
        places = np.where(known, classes, 0).astype(int).clip(0, found.mean.shape[1] - 1)
        error = 1 - found.mean[np.arange(len(found)), places]
        return np.where(known, error, -1.0)
    error = np.abs(found.target - found.mean)  # [M, outputs]
    known = ~np.isnan(error)
    if _is_regression(report) and error.shape[1] > 1:
        width = np.nanstd(np.where(known.any(axis=0), found.target, 0.0), axis=0)
        error = error / np.where(width > 0, width, 1.0)
    total = np.where(known, error, 0.0).sum(axis=1)
    return np.where(known.any(axis=1), total / known.sum(axis=1).clip(min=1), -1.0)


def _row_name(found: SavedPredictions, place: int) -> str:
    return f"{'Row' if found.smiles else 'Graph'} {found.rows[place]}"


def _values(report: RunReport, found: SavedPredictions, place: int) -> list[tuple[str, str]]:
    """True and predicted values of one row."""
    facts: list[tuple[str, str]] = []
    if report.task.classes is not None:
        true = int(found.target[place, 0])
        facts = [
            ("True", _class_name(report, true)),
            ("Predicted", _class_name(report, int(found.mean[place].argmax()))),
            ("Probability of the true class", f"{found.mean[place, true]:.3f}"),
        ]
    else:
        for one in range(min(found.mean.shape[1], MOST_TARGETS)):
            if np.isnan(found.target[place, one]):
                continue
            true, mean = found.target[place, one], found.mean[place, one]
            std = found.std[place, one] * (_scale(report, found, one) or 1.0)
            value, spread = with_spread(mean, std)
            told, predicted = signed(f"{true:.4g}"), "Predicted"
            if report.classes and not _is_regression(report):  # one output for two classes
                told = _class_name(report, int(true))
                predicted = f"Probability of {_class_name(report, 1)}"
            facts.append((f"True {report.target_name(one, found)}", told))
            facts.append((predicted, f"{value} ± {spread}" if spread else value))
            facts.append(("Error", signed(f"{mean - true:+.3g}")))
    return facts


def _class_name(report: RunReport, place: int) -> str:
    return report.classes[place] if place < len(report.classes) else f"class {place}"


def _pictures(smiles: Sequence[str]) -> list[str]:
    """Molecules as data URLs; empty for those that cannot be drawn."""
    try:
        reader = MoleculeReader(drawings=True)
    except GrassError:  # RDKit is an optional dependency
        return [""] * len(smiles)
    with ReadingPool(reader, workers=1) as pool:
        return [
            "" if isinstance(one, str) else picture(plain_molecule_svg(one.drawable, 300, 220))
            for one in pool.read(smiles)
        ]

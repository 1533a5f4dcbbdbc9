"""Charts in the report of a run: losses, predictions, residuals and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.ticker import MaxNLocator

from grass_gnn.experiments.measured import RunRecord
from grass_gnn.report.svg import COLORS, INK, ReportFigure, axes, diagonal, drawing
from grass_gnn.report.table import Entry, ReportTable, number, signed
from grass_gnn.tasks import METRICS, ProbabilityTask
from grass_gnn.uncertainty.calibration import (
    LEVELS,
    calibration_error,
    coverage,
    miscalibration_area,
    reliability,
    with_temperature,
)

MOST_POINTS = 1500  # in a scatter plot; more are subsampled evenly
MOST_BARS = 300  # largest number of points with error bars
_FEWEST = 20  # rows below which the calibration of probabilities is not drawn


def loss_figure(name: str, run: RunRecord) -> ReportFigure | None:
    """Training loss and validation score against epochs, with the chosen epoch marked.

    They share a panel if they are the same quantity: both losses are known, or the loss is the
    metric itself.
    """
    task = run.config.task
    metric = METRICS[task.metric].title
    training, validation, unit = _column(run, "train_loss"), _column(run, "val_loss"), "loss"
    together = bool(validation)
    if not together:
        validation, unit = _column(run, "val_metric"), metric
        together = (task.loss, task.metric, task.outputs) == ("l1", "mae", 1)
    if len(training) < 2 and len(validation) < 2:
        return None
    best = run.results["training"].get("best_epoch")
    lines = [("training", training, unit if together else "loss", COLORS[1])]
    lines.append(("validation", validation, unit, COLORS[0]))
    lines = [line for line in lines if line[1]]
    told = "; ".join(
        f"{label} {what} falls from {number(points[0][1])} to {number(points[-1][1])}"
        if points[-1][1] < points[0][1]
        else f"{label} {what} changes from {number(points[0][1])} to {number(points[-1][1])}"
        for label, points, what, _ in lines
    )
    chosen = f" The weights of epoch {best} were kept." if best else ""
    epochs = int(max(epoch for _, points, _, _ in lines for epoch, _ in points))
    text = f"Training curves over {epochs} epochs: {told}.{chosen}"
    panels = 1 if together else len(lines)
    with drawing(f"{name}-loss", text, width=7.2, height=3.2 if panels == 1 else 4.6) as draft:
        made = axes(draft, panels, 1, sharex=True, squeeze=False).ravel()
        for place, (label, points, what, color) in enumerate(lines):
            ax = made[0 if together else place]
            marker = "o" if len(points) <= 30 else None
            x, y = zip(*points, strict=True)
            ax.plot(x, y, color=color, marker=marker, markersize=3.5, label=label)
            ax.set_ylabel(what if together else f"{label} {what}")
            if points[-1][1] >= 0:
                ax.set_ylim(bottom=0)
        if best:
            for ax in made:
                ax.axvline(best, color=INK, linewidth=1, linestyle=(0, (4, 3)), alpha=0.7)
            _mark_best(made[-1], best, dict(validation))
        if together:
            made[0].legend(loc="upper right")
        made[-1].set_xlabel("epoch")
        made[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    rows = [
        [
            Entry(label),
            Entry(what),
            Entry(number(points[0][1])),
            Entry(number(_at(points, best))),
            Entry(number(points[-1][1])),
        ]
        for label, points, what, _ in lines
    ]
    columns = ["", "", "first epoch", f"epoch {best}" if best else "best", "last epoch"]
    numbers = ReportTable(f"{name}-loss", "Show the numbers", columns, rows)
    note = chosen.strip()
    if unit != "loss" and together:
        note = f"{note} Training: mean over the batches of an epoch, with edge removal.".strip()
    return ReportFigure(f"{name}-loss", "Training and validation", draft.svg, text, numbers, note)


def _column(run: RunRecord, column: str) -> list[tuple[float, float]]:
    return [(row["epoch"], row[column]) for row in run.curve if column in row]


def _at(points: Sequence[tuple[float, float]], epoch: int | None) -> float:
    """The value at an epoch, or the lowest one."""
    return dict(points).get(epoch or 0, min(value for _, value in points))


def _mark_best(ax: Any, best: int, validation: dict[float, float]) -> None:
    if best in validation:
        ax.plot([best], [validation[best]], "o", color=COLORS[0], markersize=8, zorder=3)
        ax.annotate(
            f"epoch {best} kept",
            (best, validation[best]),
            xytext=(-8, 12),
            textcoords="offset points",
            ha="right",
        )


def agreement_figure(
    name: str, target: str, split: str, true: np.ndarray, mean: np.ndarray, std: np.ndarray
) -> ReportFigure:
    """Predicted against true values [M], with bars of one standard deviation."""
    error = float(np.abs(true - mean).mean())
    rmse = float(np.sqrt(np.square(true - mean).mean()))
    varied = len(true) > 2 and true.std() > 0 and mean.std() > 0
    r = f", correlation {np.corrcoef(true, mean)[0, 1]:.3f}" if varied else ""
    text = (
        f"Predicted against true {target} of {len(true):,} {split} rows: mean absolute error "
        f"{number(error)}, RMSE {number(rmse)}{r}."
    )
    shown = _sample(len(true))
    x, y, bars = true[shown], mean[shown], std[shown]
    with drawing(f"{name}-predictions", text, width=4.4, height=4.2) as draft:
        ax = axes(draft)
        low, high = min(x.min(), y.min()), max(x.max(), y.max())
        margin = 0.04 * (high - low or 1.0)
        diagonal(ax, (low - margin, high + margin))
        if len(shown) <= MOST_BARS:
            ax.errorbar(
                x, y, bars, fmt="none", ecolor=COLORS[0], elinewidth=1.1, alpha=0.55, zorder=2
            )
        size = 22 if len(shown) <= MOST_BARS else 10
        ax.scatter(x, y, s=size, color=COLORS[0], alpha=0.8, linewidths=0, zorder=3)
        ax.set(xlabel=f"true {target}", ylabel=f"predicted {target}")
    title = f"Predicted against true {target}: {split} set"
    note = f"{len(true):,} rows; MAE {number(error)}, RMSE {number(rmse)}{r}."
    if len(shown) < len(true):
        note += f" An even sample of {len(shown):,} is shown."
    return ReportFigure(f"{name}-predictions", title, draft.svg, text, None, note)


def residual_figure(
    name: str, target: str, split: str, true: np.ndarray, mean: np.ndarray
) -> ReportFigure:
    """Errors [M] against predictions, and a histogram of the errors."""
    residual = mean - true
    bias, spread = float(residual.mean()), float(residual.std())
    text = (
        f"Errors (predicted minus true) of {target} against predictions, {split} set: mean "
        f"{signed(number(bias))}, standard deviation {number(spread)}."
    )
    shown = _sample(len(true))
    with drawing(f"{name}-residuals", text, width=4.8, height=4.2) as draft:
        left, right = axes(draft, 1, 2, sharey=True, width_ratios=(3, 1))
        left.axhline(0, color=INK, alpha=0.55, linewidth=1, linestyle=(0, (4, 3)))
        size = 22 if len(shown) <= MOST_BARS else 10
        left.scatter(mean[shown], residual[shown], s=size, color=COLORS[0], alpha=0.8, linewidths=0)
        left.set(xlabel=f"predicted {target}", ylabel="predicted − true")
        bins = min(40, max(8, round(len(residual) ** 0.5)))
        right.hist(residual, bins=bins, orientation="horizontal", color=COLORS[0], alpha=0.8)
        right.set(xlabel="rows")
    note = f"Mean error {signed(number(bias))}, standard deviation {number(spread)}."
    return ReportFigure(
        f"{name}-residuals", f"Residuals of {target}: {split} set", draft.svg, text, None, note
    )


def coverage_figure(
    name: str,
    target: str,
    error: np.ndarray,
    std: np.ndarray,
    scale: float | None,
    calibrated: bool = False,
) -> ReportFigure | None:
    """Share of errors [M] within the predicted intervals, by confidence level.

    Args:
        name: Name of the run.
        target: Name of the target.
        error: Errors.
        std: Standard deviations.
        scale: A factor that calibrates them.
        calibrated: Whether they are calibrated already.
    """
    known = std > 1e-3 * np.median(std)  # rows that do not depend on the rewiring have no std
    if known.sum() < 10:
        return None
    z = error[known] / std[known]
    curves = [("calibrated" if calibrated else "as predicted", z, COLORS[0 if calibrated else 1])]
    if scale is not None:
        curves.append((f"calibrated (× {scale:.3g})", z / scale, COLORS[0]))
    final = curves[-1][1]
    within = [float(np.mean(np.abs(final) <= width)) for width in (1, 2)]
    told = (
        f"{100 * within[0]:.0f} % of errors are within one standard deviation, "
        f"{100 * within[1]:.0f} % within two"
    )
    ideal = "for Gaussian errors, 68 % and 95 % would be"
    text = f"Calibration of {target}, test set: {told}; {ideal}."
    with drawing(f"{name}-coverage", text, width=4.4, height=4.2) as draft:
        ax = axes(draft)
        diagonal(ax)
        for label, values, color in curves:
            observed = coverage(values)
            ax.fill_between(LEVELS, LEVELS, observed, color=color, alpha=0.15, linewidth=0)
            area = miscalibration_area(values)
            ax.plot(LEVELS, observed, color=color, label=f"{label}, area {area:.2f}")
        ax.set(xlabel="confidence", ylabel="share of errors within the interval")
        ax.legend(loc="upper left")
    note = f"{told[0].upper()}{told[1:]} ({ideal}). Below the diagonal, error bars are too small."
    return ReportFigure(
        f"{name}-coverage", f"Calibration of {target}: test set", draft.svg, text, None, note
    )


def reliability_figure(
    name: str,
    task: ProbabilityTask,
    probability: np.ndarray,
    target: np.ndarray,
    temperature: float | None,
) -> ReportFigure | None:
    """How often predictions of each probability are right, in groups of equal size.

    Args:
        name: Prefix of the figure's name.
        task: The task, which has classes or labels.
        probability: Of classes or labels [M, outputs].
        target: Classes [M, 1], or labels [M, outputs] with NaN where one is missing.
        temperature: That of the calibration, if there is one.
    """
    predicted = torch.from_numpy(probability)
    true = task.as_targets(torch.from_numpy(target))
    if len(task.confidence(predicted, true)[0]) < _FEWEST:
        return None
    curves = [("as predicted", predicted, COLORS[1])]
    if temperature is not None:
        scaled = with_temperature(task, predicted, temperature)
        curves.append((f"temperature {temperature:.3g}", scaled, COLORS[0]))
    errors = [calibration_error(task, values, true) for _, values, _ in curves]
    told = ", ".join(
        f"{error:.3f} ({label})" for (label, _, _), error in zip(curves, errors, strict=True)
    )
    note = (
        f"Expected calibration error {told}. Groups of equal size; bars are standard errors. "
        "Points below the diagonal: the model is too sure."
    )
    text = f"Calibration of probabilities, {len(probability):,} test rows. {note}"
    with drawing(f"{name}-reliability", text, width=4.4, height=4.2) as draft:
        ax = axes(draft)
        diagonal(ax)
        for (label, values, color), error in zip(curves, errors, strict=True):
            ax.errorbar(
                *reliability(task, values, true),
                color=color,
                marker="o",
                markersize=5,
                elinewidth=1,
                clip_on=False,
                label=f"{label}, error {error:.2f}",
            )
        ax.set(xlabel=task.confidence_label, ylabel=task.accuracy_label)
        ax.legend(loc="best")
    title = "Calibration of probabilities: test set"
    return ReportFigure(f"{name}-reliability", title, draft.svg, text, None, note)


def _sample(count: int) -> np.ndarray:
    """Indices of at most :data:`MOST_POINTS` evenly spaced rows."""
    return np.arange(0, count, -(-count // MOST_POINTS))

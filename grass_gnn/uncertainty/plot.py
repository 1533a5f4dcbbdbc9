"""Calibration plots: coverage and reliability."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from grass_gnn.files import write_whole
from grass_gnn.tasks import ProbabilityTask
from grass_gnn.uncertainty.calibration import (
    LEVELS,
    calibration_error,
    coverage,
    miscalibration_area,
    reliability,
    with_temperature,
)

MOST_PANELS = 12  # targets per figure
_COLUMNS = 4
_BEFORE, _AFTER = "#c2571a", "#1d6fa5"
_STYLE: Any = {
    "font.size": 9.5,
    "text.parse_math": False,  # names of targets may have dollar signs
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


def draw_coverage(
    before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray], path: Path
) -> None:
    """Write a PNG with the coverage of each target, before and after calibration.

    Args:
        before: The z-scores of each target with the uncalibrated std [M].
        after: Those with the calibrated std [M].
        path: The file.
    """
    shown = list(before)[:MOST_PANELS]
    with matplotlib.rc_context(_STYLE):
        figure, panels = _panels(len(shown))
        for name, axes in zip(shown, panels, strict=False):
            for values, color, what in (
                (before[name], _BEFORE, "uncalibrated"),
                (after[name], _AFTER, "calibrated"),
            ):
                observed, area = coverage(values), miscalibration_area(values)
                axes.fill_between(LEVELS, LEVELS, observed, color=color, alpha=0.13, lw=0)
                axes.plot(LEVELS, observed, color=color, lw=1.8, label=f"{what}: area {area:.3f}")
            axes.set_title(f"{name} ({len(after[name]):,} rows)", loc="left")
            across = "confidence\n(above the diagonal: underconfident; below: overconfident)"
            _finish(axes, across, "fraction of errors within the interval")
        _save(figure, path)


def draw_reliability(
    task: ProbabilityTask, probability: Tensor, target: Tensor, temperature: float, path: Path
) -> None:
    """Write a PNG with the accuracy as a function of the predicted probability.

    Args:
        task: The task, which has classes or labels.
        probability: Probabilities of classes or labels [M, outputs].
        target: Classes [M], or labels [M, outputs].
        temperature: Temperature of the second curve.
        path: The file.
    """
    with matplotlib.rc_context(_STYLE):
        figure, (axes,) = _panels(1)
        for value, color, what in (
            (1.0, _BEFORE, "as predicted"),
            (temperature, _AFTER, f"temperature {temperature:.3g}"),
        ):
            changed = with_temperature(task, probability, value)
            error = calibration_error(task, changed, target)
            label = f"{what}: error {error:.3f}"
            axes.errorbar(
                *reliability(task, changed, target),
                color=color,
                lw=1.4,
                elinewidth=0.8,
                marker="o",
                ms=4.5,
                clip_on=False,
                label=label,
            )
        axes.set_title(f"{len(probability):,} rows, in ten groups of equal size", loc="left")
        _finish(axes, task.confidence_label, task.accuracy_label)
        _save(figure, path)


def _panels(count: int) -> tuple[Figure, list[Any]]:
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    engine = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure(figsize=(3.6 * columns + 0.6, 3.9 * rows + 0.3), layout=engine)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[count:]:
        axes.set_axis_off()
    return figure, panels[:count]


def _finish(axes: Any, across: str, up: str) -> None:
    axes.plot([0, 1], [0, 1], color="0.35", lw=1, ls="--", zorder=1)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel=across, ylabel=up)
    axes.grid(True, color="0.5", alpha=0.15, lw=0.6)
    axes.legend(loc="best", handlelength=1.5)


def _save(figure: Figure, path: Path) -> None:
    with write_whole(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)

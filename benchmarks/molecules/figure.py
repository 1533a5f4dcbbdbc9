"""The figure of the comparison: errors of the other methods relative to those of grass-gnn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scores import OURS, error_of

MARKERS = {
    "chemprop": ("o", "#c2410c"),
    "chemprop-rdkit": ("D", "#e8883a"),
    "forest": ("s", "#3b82c4"),
    "lightgbm": ("^", "#5b21b6"),
}
INK, QUIET = "#1c2320", "#6b7570"


def draw(cells: dict[str, Any], path: Path) -> None:
    """Write an SVG with one line per table and split.

    A marker is filled where the 95 % interval of the difference to grass-gnn does not include zero.
    """
    rows = [cell for cell, row in cells.items() if OURS in row and len(row) > 1]
    figure = Figure(figsize=(7.6, 1.3 + 0.3 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    axes.axvline(1, color=INK, linewidth=1.2, zorder=1)
    for place, cell in enumerate(reversed(rows)):
        axes.axhline(place, color="#e3e8e5", linewidth=0.8, zorder=0)
        ours = error_of(cells[cell][OURS])
        for method, (marker, color) in MARKERS.items():
            if (entry := cells[cell].get(method)) is None:
                continue
            low, high = entry["ours_minus_this"]
            face = "white" if low <= 0 <= high else color
            axes.plot(
                error_of(entry) / ours,
                place,
                marker,
                color=color,
                markerfacecolor=face,
                markersize=7,
            )
    axes.set_yticks(range(len(rows)), reversed(rows), color=INK)
    label = "error relative to grass-gnn (RMSE, or 1 − ROC-AUC)\nabove 1, grass-gnn is better"
    axes.set_xlabel(label, color=INK)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    used = [m for m in MARKERS if any(m in cells[cell] for cell in rows)]
    handles = [
        Line2D([], [], marker=MARKERS[m][0], color=MARKERS[m][1], linestyle="", label=m)
        for m in used
    ]
    handles.append(
        Line2D([], [], marker="o", color=QUIET, markerfacecolor="white", linestyle="",
               label="within chance")
    )  # fmt: skip
    axes.legend(
        handles=handles, ncols=len(handles), loc="lower left", bbox_to_anchor=(-0.02, 1.0),
        frameon=False, fontsize=9, handletextpad=0.2, columnspacing=1.0,
    )  # fmt: skip
    figure.set_facecolor("white")
    FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None})

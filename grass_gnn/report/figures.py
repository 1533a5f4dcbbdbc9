"""Charts of grids: training curves, added edges, predictions, and an example of rewiring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import networkx as nx
import numpy as np
import torch
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from grass_gnn.experiments.catalogue import Filling
from grass_gnn.experiments.measured import GridRecord, Measured, RunRecord
from grass_gnn.experiments.published import published_table
from grass_gnn.report.comparison import cell_label
from grass_gnn.report.svg import ACCENT, COLORS, INK, ReportFigure, axes, diagonal, drawing
from grass_gnn.report.table import Entry, ReportTable, number
from grass_gnn.rewiring import random_regular_edges
from grass_gnn.tasks import METRICS, make_task

MOST_LINES = 7  # in a chart: the highlighted one, and the best and the worst of the others
HIGHLIGHT = "GRASS"


def training_curves(name: str, runs: Sequence[tuple[str, RunRecord]]) -> ReportFigure | None:
    """Validation metric against epochs."""
    curves = [
        (label, [(row["epoch"], row["val_metric"]) for row in run.curve if "val_metric" in row])
        for label, run in runs
    ]
    return _lines(f"{name}-curves", "Training curves", "epoch", runs, curves)


def against_minutes(name: str, runs: Sequence[tuple[str, RunRecord]]) -> ReportFigure | None:
    """Validation metric against minutes of training."""
    curves = []
    for label, run in runs:
        minutes, points = 0.0, []
        for row in run.curve:
            minutes += row.get("seconds", 0.0) / 60
            if "val_metric" in row:
                points.append((minutes, row["val_metric"]))
        curves.append((label, points))
    title = "Validation score against training time"
    return _lines(f"{name}-minutes", title, "training time (minutes)", runs, curves)


Curve = tuple[str, list[tuple[float, float]]]


def _lines(
    name: str,
    title: str,
    across: str,
    runs: Sequence[tuple[str, RunRecord]],
    curves: Sequence[Curve],
) -> ReportFigure | None:
    curves = [(label, points) for label, points in curves if points]
    if not curves:
        return None
    metric = METRICS[runs[0][1].config.task.metric]
    up = f"validation {metric.title}"
    shown = _chosen_lines(curves, metric.lower_is_better)
    ends = [(label, points[-1]) for label, points in curves]
    told = "; ".join(f"{label} ends at {number(points[-1][1])}" for label, points in shown)
    text = f"{title}: {up} against {across}. {told}."
    with drawing(name, text, height=3.0 + 0.19 * len(shown)) as draft:
        ax = axes(draft)
        others = iter(color for color in COLORS if color != ACCENT)
        for label, points in shown:
            main = label == HIGHLIGHT and len(shown) > 1
            ax.plot(
                *zip(*points, strict=True),
                color=ACCENT if main or len(shown) == 1 else next(others),
                linewidth=2.8 if main else 1.2,
                zorder=3 if main else 2,
                label=label,
                marker="o" if len(points) == 1 else None,
                markersize=4,
            )
        ax.set(xlabel=across, ylabel=up)
        heights = [y for _, points in shown for _, y in points]
        if 0 < 8 * min(heights) < max(heights):  # early peaks would hide the differences at the end
            ax.set_yscale("log")
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(FormatStrFormatter("%g"))
            ax.yaxis.set_minor_formatter(NullFormatter())
        if len(shown) > 1:
            draft.figure.legend(loc="outside lower left", ncols=1)
    rows = [[Entry(label), Entry(number(x)), Entry(number(y))] for label, (x, y) in ends]
    numbers = ReportTable(name, "Last values of all lines", ["", across, up], rows)
    note = ""
    if len(shown) < len(curves):
        note = f"The {len(shown)} best and worst of {len(curves)} lines; the table has all of them."
    return ReportFigure(name, title, draft.svg, text, numbers, note)


def _chosen_lines(curves: Sequence[Curve], lower_is_better: bool) -> list[Curve]:
    """The highlighted line, and the best and the worst of the others if there are many."""
    main = [curve for curve in curves if curve[0] == HIGHLIGHT]
    others = [curve for curve in curves if curve[0] != HIGHLIGHT]
    room = MOST_LINES - len(main)
    if len(others) > room:
        ranked = sorted(others, key=lambda curve: curve[1][-1][1], reverse=not lower_is_better)
        kept = ranked[: room - room // 2] + ranked[len(ranked) - room // 2 :]
        others = [curve for curve in others if curve in kept]
    return main + others


def added_edges(grid: GridRecord) -> ReportFigure | None:
    """The paper's Figure 4: the metric against added edges, with bars of one standard error."""
    filling = grid.experiment.fillings[0]
    if not filling.table.startswith("added-edges"):
        return None
    table = published_table(filling.table)
    metric = next(iter(table.metrics.values()))
    name = f"{grid.experiment.name}-figure"
    text = (
        f"{metric} against the number of added edges per node, in the paper and measured here, for "
        "random regular and non-regular graphs, with bars of one standard error."
    )
    rows = []
    with drawing(name, text, height=4.6) as draft:
        for ax, source in zip(axes(draft, 2, 1, sharex=True), ("Paper", "Measured"), strict=True):
            for kind, color in (("regular", COLORS[0]), ("non-regular", COLORS[1])):
                points = _edge_points(grid, filling, kind, source == "Paper")
                if not points:
                    continue
                x = [degree for degree, _ in points]
                shift = 0.12 if kind == "regular" else -0.12  # so that bars do not overlap
                ax.errorbar(
                    [degree - shift for degree in x],
                    [m.mean for _, m in points],
                    [m.standard_error or 0.0 for _, m in points],
                    label=kind,
                    color=color,
                    marker="o",
                    markersize=4,
                    capsize=3,
                )
                rows += [
                    [Entry(f"{source}, {kind}"), Entry(str(d)), Entry(number(m.mean))]
                    for d, m in points
                ]
            ax.set(ylabel=metric)
            ax.set_title(source, loc="left")
        draft.figure.axes[-1].set(xlabel="added edges per node")
        draft.figure.axes[0].legend()
    numbers = ReportTable(name, "Show the numbers", ["", "added edges per node", metric], rows)
    note = "Bars are one standard error of the mean; a single seed has none."
    return ReportFigure(name, "Number of added edges", draft.svg, text, numbers, note)


def _edge_points(
    grid: GridRecord, filling: Filling, kind: str, paper: bool
) -> list[tuple[int, Measured]]:
    """Degrees and scores of one kind of graph; both kinds start without added edges."""
    points = []
    table = published_table(filling.table)
    for cell in grid.experiment.cells.values():
        if not cell.column.isdigit() or (cell.row != kind and cell.column != "0"):
            continue
        printed = filling.published(cell)
        if paper and printed.value is not None:
            runs = next(iter(table.runs.values()))
            points.append((int(cell.column), Measured(printed.value, printed.spread, runs)))
        elif not paper and (found := grid.measured(cell, "score")) is not None:
            points.append((int(cell.column), found))
    return sorted(points, key=lambda point: point[0]) if len(points) > 1 else []


def predicted_against_true(
    name: str, run: RunRecord, classes: Sequence[str] = ()
) -> ReportFigure | None:
    """A scatter plot for regression, a confusion matrix for classification."""
    chart, pairs = make_task(run.config.task).chart, run.predictions
    if not pairs:
        return None
    how = "For one rewiring" if run.is_cell else "Averaged over rewirings"
    name = f"{name}-predictions"
    targets, predictions = np.array(pairs).T
    if chart == "confusion":
        return _confusion(name, targets.astype(int), predictions.astype(int), how, classes)
    if chart != "scatter":
        return None
    correlation = float(np.corrcoef(targets, predictions)[0, 1])
    text = (
        f"Predictions against true values of {len(pairs)} test targets: correlation "
        f"{correlation:.3f}, mean absolute error {np.abs(targets - predictions).mean():.4f}."
    )
    with drawing(name, text, width=4.2, height=4.0) as draft:
        ax = axes(draft)
        low, high = np.percentile(np.concatenate([targets, predictions]), [0.2, 99.8])
        margin = 0.03 * (high - low or 1.0)
        diagonal(ax, (low - margin, high + margin))
        shown = (targets >= low) & (targets <= high)
        size = 20 if shown.sum() <= 300 else 10
        ax.scatter(targets[shown], predictions[shown], s=size, alpha=0.75, linewidths=0)
        ax.set(xlabel="true value, test set", ylabel="predicted value")
    note = f"{how}; correlation {correlation:.3f}."
    return ReportFigure(name, "Predicted against true: test set", draft.svg, text, None, note)


def _confusion(
    name: str,
    targets: np.ndarray,
    predictions: np.ndarray,
    how: str,
    names: Sequence[str] = (),
) -> ReportFigure:
    classes = int(max(targets.max(), predictions.max())) + 1
    names = list(names) if len(names) >= classes else [str(place) for place in range(classes)]
    counts = Counter(zip(targets.tolist(), predictions.tolist(), strict=True))
    matrix = np.array([[counts[t, p] for p in range(classes)] for t in range(classes)], float)
    share = matrix / matrix.sum(axis=1, keepdims=True).clip(min=1)
    right = float((targets == predictions).mean())
    text = f"Predicted class against true class of {len(targets)} targets: {right:.1%} agree."
    with drawing(name, text, width=4.2, height=3.8) as draft:
        ax = draft.figure.subplots()
        image = ax.imshow(share, cmap="viridis", vmin=0, vmax=1)
        draft.figure.colorbar(image, ax=ax, shrink=0.8, label="share of the true class")
        ax.set(xlabel="predicted class", ylabel="true class")
        if classes <= 12:
            short = [label if len(label) <= 12 else f"{label[:11]}…" for label in names[:classes]]
            ax.set_xticks(range(classes), short, rotation=90 if max(map(len, short)) > 3 else 0)
            ax.set_yticks(range(classes), short)
    rows = [[Entry(names[t]), Entry(f"{share[t, t]:.1%}")] for t in range(classes)]
    numbers = ReportTable(name, "Recall per class", ["class", "recall"], rows)
    return ReportFigure(
        name, "Predicted against true: test set", draft.svg, text, numbers, f"{how}."
    )


def grid_figures(grid: GridRecord) -> list[ReportFigure]:
    """All charts of a grid."""
    name = grid.experiment.name
    first = [
        (cell_label(grid, cell), grid.runs[key][0])
        for key, cell in grid.experiment.cells.items()
        if grid.runs[key]
    ]
    baselines = any(cell.architecture for cell in grid.experiment.cells.values())
    same_metric = len({run.config.task.metric for _, run in first}) == 1
    figures = [added_edges(grid)]
    if same_metric:
        figures.append(against_minutes(name, first) if baselines else None)
        figures.append(training_curves(name, first))
    if first:
        figures.append(predicted_against_true(name, first[0][1]))
    return [figure for figure in figures if figure is not None]


SEEDS = (2, 5)  # seeds of the two rewirings


def poorly_connected() -> nx.Graph:
    """Two rings joined by a path: a bottleneck."""
    graph = nx.cycle_graph(6)
    graph.add_edges_from((6 + i, 6 + (i + 1) % 6) for i in range(6))
    nx.add_path(graph, [0, 12, 13, 6])
    return graph


def spectral_gap(graph: nx.Graph) -> float:
    """λ₁, the smallest positive eigenvalue of the Laplacian."""
    return float(np.linalg.eigvalsh(nx.laplacian_matrix(graph).toarray().astype(float))[1])


def rewired(graph: nx.Graph, seed: int, r: int = 2) -> list[tuple[int, int]]:
    """Edges added by the paper's r / 2 permutations."""
    ptr = torch.tensor([0, graph.number_of_nodes()])
    pairs = random_regular_edges(ptr, r, torch.tensor([seed]), "half").t().tolist()
    return [(i, j) for i, j in pairs if i < j]


def rewiring_figure() -> ReportFigure:
    """A graph before and after rewiring, with its diameter and spectral gap."""
    graph = poorly_connected()
    layout = nx.kamada_kawai_layout(graph)
    panels: list[tuple[str, list[tuple[int, int]]]] = [("Input graph", [])]
    panels += [(f"Rewiring {i}", rewired(graph, seed)) for i, seed in enumerate(SEEDS, 1)]
    facts = []
    for title, added in panels:
        whole = nx.Graph(graph)
        whole.add_edges_from(added)
        facts.append((title, nx.diameter(whole), spectral_gap(whole), len(added)))
    told = "; ".join(f"{t}: diameter {d}, spectral gap {g:.2f}" for t, d, g, _ in facts)
    text = f"Two rings joined by a path, and two random rewirings of it with r = 2. {told}."
    with drawing("rewiring", text, width=5.0, height=5.6) as draft:
        for ax, (_, added), (title, diameter, gap, _) in zip(
            draft.figure.subplots(3, 1), panels, facts, strict=True
        ):
            for edges, color, style in ((graph.edges, INK, "-"), (added, COLORS[1], (0, (3, 2)))):
                for i, j in edges:
                    x, y = zip(layout[i], layout[j], strict=True)
                    ax.plot(x, y, color=color, linestyle=style, linewidth=1.3, zorder=1)
            points = np.array([layout[node] for node in sorted(graph)])
            ax.scatter(*points.T, s=42, color=COLORS[0], zorder=2)
            ax.set_title(f"{title}: diameter {diameter}, spectral gap {gap:.2f}", loc="left")
            ax.set_aspect("equal")
            ax.set_axis_off()
    rows = [[Entry(t), Entry(str(n)), Entry(str(d)), Entry(f"{g:.3f}")] for t, d, g, n in facts]
    columns = ["", "added edges", "diameter", "spectral gap"]
    numbers = ReportTable("rewiring", "Show the numbers", columns, rows)
    note = "Solid: edges of the graph. Dashed: added edges, r = 2 (one permutation)."
    return ReportFigure("rewiring", "Effect of rewiring", draft.svg, text, numbers, note)

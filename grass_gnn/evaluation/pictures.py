"""Explanations as pictures: molecules drawn by RDKit, other graphs laid out by their springs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from grass_gnn.data.batch import ADDED_EDGE
from grass_gnn.evaluation.explanation import Explanation
from grass_gnn.files import write_text, write_whole

_SHOWN_ADDED = 10  # added edges in a picture: those with the most attention


def draw_molecule(explanation: Explanation, mol: Any, path: Path) -> None:
    """Write an SVG of an RDKit molecule: the deeper amber a bond, the more attention it gets."""
    from rdkit.Chem.Draw import rdMolDraw2D

    pairs = explanation.pairs()
    low, high = (min(pairs.values()), max(pairs.values())) if pairs else (0.0, 1.0)
    colors = {}
    for bond in mol.GetBonds():
        ends = sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
        share = (pairs.get((ends[0], ends[1]), low) - low) / max(high - low, 1e-12)
        colors[bond.GetIdx()] = (1.0, 0.96 - 0.3 * share, 0.8 - 0.7 * share)
    drawer = rdMolDraw2D.MolDraw2DSVG(480, 400)
    options: Any = drawer.drawOptions()
    options.highlightBondWidthMultiplier, options.legendFontSize = 14, 14
    shares = ", ".join(f"{name} {share:.0%}" for name, share in explanation.by_kind.items())
    rdMolDraw2D.PrepareAndDrawMolecule(
        drawer,
        mol,
        legend=f"attention: {shares}",
        highlightAtoms=[],
        highlightBonds=list(colors),
        highlightBondColors=colors,
    )
    drawer.FinishDrawing()
    write_text(path, drawer.GetDrawingText())


def draw_graph(explanation: Explanation, path: Path) -> None:
    """Write a PNG of a graph: existing edges by attention, and the most used added ones dashed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    pairs = explanation.pairs()
    added = sorted(explanation.pairs(ADDED_EDGE).items(), key=lambda item: -item[1])
    place = layout(explanation.num_nodes, list(pairs))
    figure = Figure(figsize=(6, 6))
    axes = figure.add_subplot()
    high = max([*pairs.values(), 1e-12])
    for (i, j), _ in added[:_SHOWN_ADDED]:
        axes.plot(*place[[i, j]].T, color="tab:blue", lw=1, ls="--", alpha=0.6)
    for (i, j), share in pairs.items():
        axes.plot(*place[[i, j]].T, color=(0.85, 0.15, 0.1), lw=0.5 + 5 * share / high, alpha=0.8)
    axes.scatter(
        place[:, 0], place[:, 1], s=2000 / max(explanation.num_nodes, 20), color="black", zorder=3
    )
    shares = ", ".join(f"{name} {share:.0%}" for name, share in explanation.by_kind.items())
    axes.set_title(f"attention: {shares}\nred: existing edges; dashed: most used added edges")
    axes.set_axis_off()
    with write_whole(path) as temporary:
        FigureCanvasAgg(figure).print_png(temporary)


def layout(num_nodes: int, pairs: list[tuple[int, int]], steps: int = 200) -> np.ndarray:
    """Places of nodes [n, 2]: joined ones attract each other, all repel (Fruchterman–Reingold)."""
    angle = 2 * np.pi * np.arange(num_nodes) / max(num_nodes, 1)
    place = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    ends = np.array([pair for pair in pairs if pair[0] != pair[1]], dtype=int).reshape(-1, 2)
    ideal = 1.5 / np.sqrt(max(num_nodes, 1))
    for step in range(steps):
        apart = place[:, None] - place[None]  # [n, n, 2]
        distance = np.maximum(np.linalg.norm(apart, axis=2, keepdims=True), 1e-3)
        force = (apart * (ideal / distance) ** 2).sum(axis=1)
        pull = place[ends[:, 0]] - place[ends[:, 1]]
        pull *= np.linalg.norm(pull, axis=1, keepdims=True) / ideal
        np.add.at(force, ends[:, 0], -pull)
        np.add.at(force, ends[:, 1], pull)
        length = np.maximum(np.linalg.norm(force, axis=1, keepdims=True), 1e-9)
        place = place + force / length * np.minimum(length, 0.1 * (1 - step / steps))
    return place

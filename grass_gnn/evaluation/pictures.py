"""Explanations as pictures: molecules drawn by RDKit, other graphs laid out by their springs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from grass_gnn.data.batch import ADDED_EDGE
from grass_gnn.evaluation.explanation import Explanation
from grass_gnn.files import write_text, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ADDED_COLOR = "#3b82c4"
_SHOWN_ADDED = 10  # added edges in a file's picture: those with the most attention


def draw_molecule(explanation: Explanation, mol: Any, path: Path) -> None:
    """Write an SVG of an RDKit molecule: the deeper amber a bond, the more attention it gets."""
    write_text(path, molecule_svg(explanation, mol, f"attention: {shares_text(explanation)}"))


def shares_text(explanation: Explanation) -> str:
    """What existing edges, self-loops and added edges get of all attention."""
    return ", ".join(f"{name} {share:.0%}" for name, share in explanation.by_kind.items())


def molecule_svg(
    explanation: Explanation, mol: Any, legend: str = "", with_added: bool = False
) -> str:
    """An SVG of an RDKit molecule.

    Args:
        explanation: Attention by bond; atoms numbered as in the molecule.
        mol: The molecule.
        legend: A line below it.
        with_added: Draw all added edges, dashed below the bonds.
    """
    from rdkit.Chem.Draw import rdMolDraw2D

    pairs = explanation.pairs()
    low, high = attention_range(explanation)
    colors = {}
    for bond in mol.GetBonds():
        ends = sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
        share = (pairs.get((ends[0], ends[1]), low) - low) / max(high - low, 1e-12)
        colors[bond.GetIdx()] = (1.0, 0.96 - 0.3 * share, 0.8 - 0.7 * share)
    drawer = rdMolDraw2D.MolDraw2DSVG(480, 400)
    options: Any = drawer.drawOptions()
    options.highlightBondWidthMultiplier, options.legendFontSize = 14, 14
    rdMolDraw2D.PrepareAndDrawMolecule(
        drawer,
        mol,
        legend=legend,
        highlightAtoms=[],
        highlightBonds=list(colors),
        highlightBondColors=colors,
    )
    drawer.FinishDrawing()
    svg = drawer.GetDrawingText()
    if not with_added:
        return svg
    places = [drawer.GetDrawCoords(number) for number in range(mol.GetNumAtoms())]
    lines = _dashed_lines(explanation, [(place.x, place.y) for place in places])
    return svg.replace("</rect>", f"</rect>\n{lines}", 1)  # above the background, below the bonds


def attention_range(explanation: Explanation) -> tuple[float, float]:
    """The least and the most attention that an existing edge gets: the ends of the colours."""
    pairs = explanation.pairs()
    return (min(pairs.values()), max(pairs.values())) if pairs else (0.0, 1.0)


def _dashed_lines(explanation: Explanation, places: Sequence[tuple[float, float]]) -> str:
    """Added edges as SVG, wider where they get more attention."""
    pairs = explanation.pairs(ADDED_EDGE)
    high = max([*pairs.values(), 1e-12])
    lines = []
    for (i, j), share in pairs.items():
        (x1, y1), (x2, y2) = places[i], places[j]
        lines.append(
            f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' "
            f"stroke='{ADDED_COLOR}' stroke-opacity='0.55' stroke-dasharray='5 4' "
            f"stroke-width='{0.8 + 2 * share / high:.2f}'/>"
        )
    return "\n".join(lines)


def draw_graph(explanation: Explanation, path: Path) -> None:
    """Write a PNG of a graph: existing edges by attention, and the most used added ones dashed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    place = layout(explanation.num_nodes, list(explanation.pairs()))
    figure = graph_figure(explanation, place, most_added=_SHOWN_ADDED)
    figure.axes[0].set_title(
        f"attention: {shares_text(explanation)}\n"
        "deeper and wider: more of it; dashed: most used added edges"
    )
    with write_whole(path) as temporary:
        FigureCanvasAgg(figure).print_png(temporary)


def graph_figure(
    explanation: Explanation,
    place: np.ndarray,
    most_added: int | None = None,
    node_colors: Any = "#3f4a45",
) -> Figure:
    """A graph: the deeper and wider an edge, the more attention it gets; added ones are dashed.

    Args:
        explanation: Attention by edge.
        place: Places of the nodes [n, 2].
        most_added: Show so many added edges, those with the most attention; all if not given.
        node_colors: One colour, or one of each node.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    pairs = {ends: share for ends, share in explanation.pairs().items() if ends[0] != ends[1]}
    added = sorted(explanation.pairs(ADDED_EDGE).items(), key=lambda item: -item[1])[:most_added]
    low, high = attention_range(explanation)
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.add_subplot()
    dashed = [place[list(ends)] for ends, _ in added]
    axes.add_collection(
        LineCollection(dashed, colors=ADDED_COLOR, linewidths=0.9, linestyles="--", alpha=0.45)
    )
    ordered = sorted(pairs.items(), key=lambda item: item[1])  # what gets most lies on top
    depth = [(share - low) / max(high - low, 1e-12) for _, share in ordered]
    faint = min(1.0, max(0.15, 250 / max(len(ordered), 1)))  # what gets little, among many edges
    axes.add_collection(
        LineCollection(
            [place[list(ends)] for ends, _ in ordered],
            colors=[
                (0.94 - 0.1 * s, 0.8 - 0.42 * s, 0.55 - 0.52 * s, faint + (1 - faint) * s)
                for s in depth
            ],
            linewidths=[0.8 + 3.2 * s for s in depth],
        )
    )
    size = 4400 / max(explanation.num_nodes, 40)
    x, y = place.T
    axes.scatter(x, y, s=size, c=node_colors, edgecolors="white", linewidths=0.5, zorder=3)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return figure


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

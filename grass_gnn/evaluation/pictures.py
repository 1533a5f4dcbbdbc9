"""Pictures of molecules and graphs, coloured by attention or by the contributions of atoms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from grass_gnn.data.batch import ADDED_EDGE
from grass_gnn.evaluation.explain import Explanation, attention_range, shares_text
from grass_gnn.files import write_text, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ADDED_COLOR = "#3b82c4"
PALE, DEEP = "#fff5cc", "#ffa81a"  # bonds with no attention, and with the most on the scale
_RAISES, _LOWERS = (1.0, 0.66, 0.1), (0.23, 0.51, 0.77)  # atoms: DEEP and ADDED_COLOR
_SHOWN_ADDED = 10  # added edges in the picture of a graph: those with the most attention
_SMALL = 150  # nodes up to which the Kamada–Kawai layout is cheap
_SIZE = 480, 400  # of a drawn molecule
_HEADER, _FOOTER = 62, 64  # of its picture in a file: name and prediction, legend


def common_scale(explanations: Iterable[Explanation]) -> float:
    """The end of a colour scale that starts at 0 and covers all the given graphs."""
    return max([attention_range(one)[1] for one in explanations if one.pairs()], default=1.0)


# --- Molecules -----------------------------------------------------------------------------------


def draw_molecule(
    explanation: Explanation,
    mol: Any,
    path: Path,
    *,
    name: str = "",
    prediction: str = "",
    scale: float | None = None,
) -> None:
    """Write an SVG of an RDKit molecule with its bonds coloured by attention, and a legend.

    Args:
        explanation: Attention per bond; atoms numbered as in the molecule.
        mol: The molecule.
        path: The file.
        name: Name of the molecule, for the first line of the picture.
        prediction: The second line.
        scale: The attention shown in the deepest colour (see :func:`common_scale`); the highest of
            this molecule if not given. The scale starts at 0.
    """
    scale = scale or common_scale([explanation])
    inner = molecule_svg(explanation, mol, scale=scale)
    low, high = attention_range(explanation)
    found = f"{low:.2f} to {high:.2f}" if explanation.pairs() else "no bonds"
    bonds, loops, added = explanation.by_kind.values()
    legend = _Legend(
        title="attention per bond",
        range=f"attention per bond: {found}",
        colors=(PALE, DEEP),
        ends=("0", f"{scale:.2f}"),
        remarks=(
            "share of all attention",
            f"bonds {100 * bonds:.0f} %, self-loops {100 * loops:.0f} %,",
            f"added edges {100 * added:.0f} %",
        ),
    )
    write_text(path, _framed(inner, name, prediction, legend))


def draw_contributions(
    values: Sequence[float],
    mol: Any,
    path: Path,
    *,
    target: str,
    name: str = "",
    prediction: str = "",
    scale: float | None = None,
) -> None:
    """Write an SVG of an RDKit molecule with its atoms coloured by contribution, and a legend.

    Args:
        values: The contribution of each atom.
        mol: The molecule.
        path: The file.
        target: What the atoms contribute to.
        name: Name of the molecule, for the first line of the picture.
        prediction: The second line.
        scale: The contribution shown in the deepest colour; the largest of this molecule if not
            given. The scale is symmetric.
    """
    scale = scale or largest_contribution(values)
    svg = contributions_svg(values, mol, scale)
    legend = _Legend(
        title=f"contributions of atoms to {target}",
        range=f"per atom: {contribution_range(values)}",
        colors=(ADDED_COLOR, "#ffffff", DEEP),
        ends=(signed(-scale), signed(scale)),
        remarks=(f"contributions to {target}", "orange raises it, blue lowers it"),
    )
    write_text(path, _framed(svg, name, prediction, legend))


def contributions_svg(values: Sequence[float], mol: Any, scale: float | None = None) -> str:
    """An SVG of an RDKit molecule with its atoms coloured as by :func:`draw_contributions`."""
    scale = scale or largest_contribution(values)
    colors = {}
    for atom, value in enumerate(values):
        share = min(abs(value) / scale, 1.0)
        full = _RAISES if value > 0 else _LOWERS
        red, green, blue = (1 - share * (1 - part) for part in full)
        colors[atom] = (red, green, blue)
    return _draw(mol, {}, atom_colors=colors)[0]


def largest_contribution(values: Sequence[float]) -> float:
    """The largest absolute contribution, as the end of a colour scale; 1 if all are 0."""
    return max([abs(value) for value in values], default=0.0) or 1.0


def contribution_range(values: Sequence[float]) -> str:
    """The lowest and the highest contribution of an atom."""
    least, most = (signed(end(values)) if values else "0" for end in (min, max))
    return f"{least} to {most}"


def signed(value: float, form: str = ".2f") -> str:
    """A formatted number, with a minus sign rather than a hyphen."""
    return f"{value:{form}}".replace("-", "−")


def molecule_svg(
    explanation: Explanation, mol: Any, with_added: bool = False, scale: float | None = None
) -> str:
    """An SVG of an RDKit molecule with its bonds coloured by attention.

    Args:
        explanation: Attention per bond; atoms numbered as in the molecule.
        mol: The molecule.
        with_added: Also draw all added edges, as dashed lines behind the bonds.
        scale: As in :func:`draw_molecule`.
    """
    pairs, scale = explanation.pairs(), scale or common_scale([explanation])
    colors = {}
    for bond in mol.GetBonds():
        first, second = sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
        share = min(pairs.get((first, second), 0.0) / scale, 1.0)
        colors[bond.GetIdx()] = (1.0, 0.96 - 0.3 * share, 0.8 - 0.7 * share)  # PALE to DEEP
    svg, places = _draw(mol, colors)
    if not with_added:
        return svg
    lines = _dashed_lines(explanation, places)
    return svg.replace("</rect>", f"</rect>\n{lines}", 1)  # above the background, below the bonds


def plain_molecule_svg(mol: Any, width: int = _SIZE[0], height: int = _SIZE[1]) -> str:
    """An SVG of an RDKit molecule without attention."""
    return _draw(mol, {}, width, height)[0]


def _draw(
    mol: Any,
    bond_colors: dict[int, tuple[float, float, float]],
    width: int = _SIZE[0],
    height: int = _SIZE[1],
    atom_colors: dict[int, tuple[float, float, float]] | None = None,
) -> tuple[str, list[tuple[float, float]]]:
    """The SVG of a molecule, and the places of its atoms in it."""
    from rdkit.Chem.Draw import rdMolDraw2D

    drawer = rdMolDraw2D.MolDraw2DSVG(width, height)
    options: Any = drawer.drawOptions()
    options.highlightBondWidthMultiplier = 14
    options.fixedBondLength = 42.0  # so that small molecules are not drawn too large
    rdMolDraw2D.PrepareAndDrawMolecule(
        drawer,
        mol,
        highlightAtoms=list(atom_colors or ()),
        highlightAtomColors=atom_colors or {},
        highlightBonds=list(bond_colors),
        highlightBondColors=bond_colors,
    )
    drawer.FinishDrawing()
    places = [drawer.GetDrawCoords(number) for number in range(mol.GetNumAtoms())]
    return drawer.GetDrawingText(), [(place.x, place.y) for place in places]


def _dashed_lines(explanation: Explanation, places: Sequence[tuple[float, float]]) -> str:
    """Added edges as SVG lines, wider where they get more attention."""
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


class _Legend(NamedTuple):
    """What the colours of a picture mean."""

    title: str
    range: str  # of the values in this picture
    colors: tuple[str, ...]  # of the scale, from its left to its right end
    ends: tuple[str, str]
    remarks: tuple[str, ...]  # lines to the right of the scale


def _framed(svg: str, name: str, prediction: str, legend: _Legend) -> str:
    """A drawn molecule below its name and prediction, and above a legend."""
    width, height = _SIZE
    whole, bottom = height + _HEADER + _FOOTER, height + _HEADER
    inner = svg.partition("<!-- END OF HEADER -->")[2].rpartition("</svg>")[0]
    stops = "".join(
        f'<stop offset="{place / (len(legend.colors) - 1):g}" stop-color="{color}"/>'
        for place, color in enumerate(legend.colors)
    )
    remarks = "\n".join(
        f'<text x="232" y="{bottom + 18 + 18 * line}" font-size="12">{_text(text, 40)}</text>'
        for line, text in enumerate(legend.remarks)
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" xmlns:rdkit="http://www.rdkit.org/xml"
 xmlns:xlink="http://www.w3.org/1999/xlink" role="img" width="{width}" height="{whole}"
 viewBox="0 0 {width} {whole}" font-family="system-ui, sans-serif" fill="#1c2320">
<title>{_text(f"{name} {prediction}: {legend.title}", 200)}</title>
<defs><linearGradient id="scale">{stops}</linearGradient></defs>
<rect width="{width}" height="{whole}" fill="#ffffff"/>
<text x="16" y="28" font-size="17" font-weight="600">{_text(name, 50)}</text>
<text x="16" y="50" font-size="15">{_text(prediction, 60)}</text>
<g transform="translate(0 {_HEADER})">{inner}</g>
<text x="16" y="{bottom + 18}" font-size="12">{_text(legend.range, 40)}</text>
<rect x="16" y="{bottom + 26}" width="190" height="12" fill="url(#scale)" stroke="#c9d1cd"/>
<text x="16" y="{bottom + 53}" font-size="12">{legend.ends[0]}</text>
<text x="206" y="{bottom + 53}" font-size="12" text-anchor="end">{legend.ends[1]}</text>
{remarks}
</svg>
"""


def _text(text: str, most: int) -> str:
    """Text for an SVG: escaped, shortened, and without characters that XML forbids."""
    clean = "".join(character for character in text if character.isprintable())
    return escape(clean if len(clean) <= most else clean[: most - 1] + "…")


# --- Other graphs --------------------------------------------------------------------------------


def draw_graph(
    explanation: Explanation, path: Path, *, title: str = "", scale: float | None = None
) -> None:
    """Write a PNG of a graph with its edges coloured by attention, and a colour bar.

    Args:
        explanation: Attention per edge.
        path: The file.
        title: Name of the graph, and its prediction.
        scale: As in :func:`draw_molecule`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = scale or common_scale([explanation])
    place = layout(explanation.num_nodes, list(explanation.pairs()))
    figure = graph_figure(explanation, place, _SHOWN_ADDED, scale=scale)
    mappable = ScalarMappable(Normalize(0, scale), _edge_colors())
    figure.colorbar(mappable, ax=figure.axes[0], shrink=0.6, label="attention per edge")
    figure.axes[0].set_title(
        "\n".join(
            filter(
                None,
                [
                    title,
                    f"share of all attention: {shares_text(explanation)}",
                    f"dashed: the {_SHOWN_ADDED} added edges with the most attention",
                ],
            )
        ),
        fontsize=10,
        loc="left",
    )
    with write_whole(path) as temporary:
        FigureCanvasAgg(figure).print_png(temporary)


def graph_figure(
    explanation: Explanation,
    place: np.ndarray,
    most_added: int | None = None,
    node_colors: Any = "#3f4a45",
    scale: float | None = None,
) -> Figure:
    """A graph: edges with more attention are darker and wider, added edges are dashed.

    Args:
        explanation: Attention per edge.
        place: Positions of the nodes [n, 2].
        most_added: Number of added edges to show, those with the most attention; all if not given.
        node_colors: One colour, or one per node.
        scale: As in :func:`draw_molecule`.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    pairs = {ends: share for ends, share in explanation.pairs().items() if ends[0] != ends[1]}
    added = sorted(explanation.pairs(ADDED_EDGE).items(), key=lambda item: -item[1])[:most_added]
    scale = scale or common_scale([explanation])
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.add_subplot()
    dashed = [place[list(ends)] for ends, _ in added]
    axes.add_collection(
        LineCollection(dashed, colors=ADDED_COLOR, linewidths=0.9, linestyles="--", alpha=0.45)
    )
    ordered = sorted(pairs.items(), key=lambda item: item[1])  # the highest attention on top
    depth = [min(share / scale, 1.0) for _, share in ordered]
    faint = min(1.0, max(0.15, 250 / max(len(ordered), 1)))  # among many edges, fade the lowest
    shades = [(*_edge_colors()(s)[:3], faint + (1 - faint) * s) for s in depth]
    axes.add_collection(
        LineCollection(
            [place[list(ends)] for ends, _ in ordered],
            colors=shades,
            linewidths=[0.8 + 3.2 * s for s in depth],
        )
    )
    size = 4400 / max(explanation.num_nodes, 40)
    x, y = place.T
    axes.scatter(x, y, s=size, c=node_colors, edgecolors="white", linewidths=0.5, zorder=3)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return figure


def _edge_colors() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("attention", ["#f0cc8c", "#d66108"])


def layout(num_nodes: int, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Positions of nodes [n, 2]; the same graph always gets the same positions."""
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(pair for pair in pairs if pair[0] != pair[1])
    if 1 < num_nodes <= _SMALL and nx.is_connected(graph):
        found = nx.kamada_kawai_layout(graph)
    else:
        found = nx.spring_layout(graph, seed=0)
    return np.array([found[node] for node in range(num_nodes)]).reshape(-1, 2)

"""Where a model looks: attention by edge, averaged by a stated rule.

The attention of an edge i → j is the share with which node j takes from node i. In flipped layers
(every second one) head and tail have changed roles, so the weight that a row i → j has there is
counted for j → i. Shares are averaged over channels, layers and rewirings; edges of one kind that
run in parallel add up. What a node takes over all edges, its self-loop and the added ones
included, is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from grass_gnn.config import GRASSConfig
from grass_gnn.data.batch import ADDED_EDGE, INPUT_EDGE, SELF_LOOP
from grass_gnn.data.packed.build import pack
from grass_gnn.data.packed.dataset import PackedDataset
from grass_gnn.data.packed.loader import GraphLoader
from grass_gnn.evaluation.protocol import TEST
from grass_gnn.files import write_text, write_whole
from grass_gnn.nn.model import GRASS

KINDS = {INPUT_EDGE: "existing", SELF_LOOP: "self-loop", ADDED_EDGE: "added"}


@dataclass(frozen=True)
class Explanation:
    """Attention by edge of one graph."""

    edge_index: Tensor  # [2, K] from, to
    kind: Tensor  # [K] INPUT_EDGE, SELF_LOOP or ADDED_EDGE
    attention: Tensor  # [K] share of what the node at "to" takes
    num_nodes: int

    @property
    def by_kind(self) -> dict[str, float]:
        """Shares of all attention that existing edges, self-loops and added edges get."""
        return {
            name: float(self.attention[self.kind == kind].sum()) / self.num_nodes
            for kind, name in KINDS.items()
        }

    def pairs(self, kind: int = INPUT_EDGE) -> dict[tuple[int, int], float]:
        """Attention of each pair of nodes (the smaller number first), both directions together."""
        found: dict[tuple[int, int], float] = {}
        chosen = self.kind == kind
        edges = self.edge_index[:, chosen].t().tolist()
        for (i, j), share in zip(edges, self.attention[chosen].tolist(), strict=True):
            pair = min(i, j), max(i, j)
            found[pair] = found.get(pair, 0.0) + share
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values keyed to edges, for JSON; added edges are those that any rewiring drew."""
        rows = zip(
            self.edge_index.t().tolist(), self.kind.tolist(), self.attention.tolist(), strict=True
        )
        edges = [
            {"from": i, "to": j, "kind": KINDS[kind], "attention": share}
            for (i, j), kind, share in rows
        ]
        return {"num_nodes": self.num_nodes, "by_kind": self.by_kind, "edges": edges}


def explain_graph(
    model: GRASS,
    config: GRASSConfig,
    data: Data,
    rewirings: int = 16,
    seed: int = 0,
    by_graph: bool = False,
) -> Explanation:
    """The attention of a model on one graph, over several rewirings."""
    dataset = pack([data], config, targets=False)
    return explain_packed(model, config, dataset, range(rewirings), seed, by_graph)


@torch.no_grad()
def explain_packed(
    model: GRASS,
    config: GRASSConfig,
    dataset: PackedDataset,
    rewirings: Sequence[int],
    seed: int = 0,
    by_graph: bool = False,
) -> Explanation:
    """:func:`explain_graph` of the only graph of a dataset, over the rewirings of these numbers."""
    model.eval()
    n = dataset.num_nodes
    total = torch.zeros(len(KINDS) * n * n)  # by kind, then from, then to
    for number in rewirings:
        loader = GraphLoader(
            dataset, config, 1, seed=seed, workers=0, stream=TEST, by_graph=by_graph
        )
        loader.set_epoch(number)
        (batch,) = loader
        batch, weights = model.attention(batch.to(model.target_scale.device))
        shares = weights.mean(dim=2).cpu()  # [L, E]
        head, tail = batch.edge_index.cpu()
        kind = batch.edge_kind.cpu().long() * n * n
        flipped = config.model.flip & (torch.arange(len(shares)) % 2 == 1)  # [L]
        for straight, places in ((~flipped, head * n + tail), (flipped, tail * n + head)):
            total.index_add_(0, kind + places, shares[straight].sum(dim=0) / len(shares))
    rows = total.nonzero().squeeze(1)
    pairs = rows % (n * n)
    return Explanation(
        torch.stack([pairs // n, pairs % n]), rows // (n * n), total[rows] / len(rewirings), n
    )


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

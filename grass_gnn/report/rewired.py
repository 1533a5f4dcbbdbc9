"""The paper's Figure 2: a graph with poor connectivity, and two of its rewirings."""

from __future__ import annotations

import networkx as nx
import numpy as np
import torch

from grass_gnn.report.svg import COLORS, INK, ReportFigure, drawing
from grass_gnn.report.table import Entry, ReportTable
from grass_gnn.rewiring import random_regular_edges

SEEDS = (2, 5)  # of the two rewirings


def poorly_connected() -> nx.Graph:
    """Two rings that a path joins: everything between them must pass through it."""
    graph = nx.cycle_graph(6)
    graph.add_edges_from((6 + i, 6 + (i + 1) % 6) for i in range(6))
    nx.add_path(graph, [0, 12, 13, 6])
    return graph


def spectral_gap(graph: nx.Graph) -> float:
    """λ₁, the smallest positive eigenvalue of the Laplacian."""
    return float(np.linalg.eigvalsh(nx.laplacian_matrix(graph).toarray().astype(float))[1])


def rewired(graph: nx.Graph, seed: int, r: int = 2) -> list[tuple[int, int]]:
    """Edges that the paper's r / 2 permutations add."""
    ptr = torch.tensor([0, graph.number_of_nodes()])
    pairs = random_regular_edges(ptr, r, torch.tensor([seed]), "half").t().tolist()
    return [(i, j) for i, j in pairs if i < j]


def rewiring_figure() -> ReportFigure:
    """The drawing, with diameter and spectral gap before and after."""
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
    numbers = ReportTable("rewiring", "Its numbers", columns, rows)
    note = "Solid: edges of the graph. Dashed: added edges, r = 2 (one permutation)."
    return ReportFigure("rewiring", "What rewiring does", draft.svg, text, numbers, note)

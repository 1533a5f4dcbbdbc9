"""Draws layer.svg: what one layer does to an edge and to its tail.

Run: python docs/figures/layer.py
"""

from __future__ import annotations

from itertools import pairwise

from drawing import EDGE, GREY, INK, NODE, box, card, dot, line, text, write

WIDTH, HEIGHT = 800, 626
NODES, EDGES = "#eaf5ee", "#eef2f5"  # backgrounds of what is done to nodes and to edges


def step(x: float, y: float, w: float, words: str, fill: str, number: str = "") -> list[str]:
    """An operation, with the number of its equation."""
    shapes = [box(x, y, w, 50, fill, EDGE, 8), text(x + w / 2, y + 32, words, 20)]
    return shapes + ([text(x + w - 6, y - 7, number, 19, GREY, "end")] if number else [])


def arrow(*points: tuple[float, float]) -> list[str]:
    """A way along several points with a head at its end."""
    last = len(points) - 2
    return [
        line(a, b, INK, 2, arrow="ink" if place == last else "")
        for place, (a, b) in enumerate(pairwise(points))
    ]


def draw() -> str:
    """The figure."""
    shapes = [
        # What comes in.
        box(24, 18, 752, 110, "#fbfcfc"),
        dot((150, 58), 28, NODE, "x_i"),
        line((182, 58), (356, 58), EDGE, 5),
        box(362, 34, 76, 48, "#ffffff", EDGE),
        text(400, 66, "e_ij", 26, EDGE),
        line((438, 58), (618, 58), EDGE, 5, arrow="edge"),
        dot((650, 58), 28, NODE, "x_j"),
        text(150, 112, "head", 20, GREY),
        text(400, 112, "edge i → j", 20, GREY),
        text(650, 112, "tail", 20, GREY),
        # The weights come from the edge alone.
        *arrow((400, 128), (400, 164)),
        *step(282, 166, 236, "exp(W e_ij), dropout", EDGES, "(7)"),
        *arrow((400, 216), (400, 248)),
        *step(282, 250, 236, "softmax into j: a_ij", EDGES, "(8)"),
        *arrow((460, 300), (460, 344)),
        # Both ends and the edge go into both updates.
        *arrow((150, 128), (150, 344)),
        *step(24, 346, 330, "W e_ij + W x_i + W x_j", EDGES, "(10)"),
        *arrow((650, 128), (650, 344)),
        *step(386, 346, 390, "W x_j + Σ a_ij ⊙ (W x_i + W e_ij)", NODES, "(9)"),
        *arrow((189, 396), (189, 430)),
        *step(24, 432, 330, "W mish(· + b) = ê_ij", EDGES, "(12)"),
        *arrow((581, 396), (581, 430)),
        *step(386, 432, 390, "W mish(· + b) = x̂_j", NODES, "(11)"),
        *arrow((189, 482), (189, 516)),
        *step(24, 518, 330, "BN(e_ij + α ê_ij)", EDGES, "(14)"),
        *arrow((581, 482), (581, 516)),
        *step(386, 518, 390, "BN(x_j + α x̂_j)", NODES, "(13)"),
        text(400, 606, "Next layer: j is the head, i the tail; e keeps its row.", 20, GREY),
    ]
    title = "One layer of GRASS: attention weights come from the edge, nodes and edges are updated"
    return card(WIDTH, HEIGHT, title, shapes)


if __name__ == "__main__":
    write(draw(), __file__)

"""Draws rewiring.svg: a graph, and two of its random rewirings.

Run: python docs/figures/rewiring.py
"""

from __future__ import annotations

import math

import torch
from drawing import ADDED, GREY, PALE, Point, card, dot, line, text, write

from grass_gnn.rewiring import random_regular_edges

# Two rings of five nodes and a bridge of two: seven hops from end to end, all through the bridge.
RING, BRIDGE = 5, 2
NODES = 2 * RING + BRIDGE
WIDTH, ROW = 800, 190


def places() -> list[Point]:
    """Where the nodes stand in a row: a ring on the left, the bridge, a ring on the right."""

    def ring(centre: float, start: float) -> list[Point]:
        angles = [start + 2 * math.pi * place / RING for place in range(RING)]
        return [(centre + 66 * math.cos(angle), 66 * math.sin(angle)) for angle in angles]

    return [*ring(300, 0.0), (446, 0), (554, 0), *ring(700, math.pi)]


def edges() -> list[tuple[int, int]]:
    """The edges of the input graph."""
    first, second = 0, RING + BRIDGE
    rings = [(s + i, s + (i + 1) % RING) for s in (first, second) for i in range(RING)]
    return [*rings, (0, RING), (RING, RING + 1), (RING + 1, second)]


def drawn(seed: int) -> list[tuple[int, int]]:
    """The pairs of one permutation, as the package draws them, each once."""
    pairs = random_regular_edges(torch.tensor([0, NODES]), 1, torch.tensor([seed]), "undirected")
    return sorted({(min(pair), max(pair)) for pair in pairs.t().tolist()})


def most_hops(joined: list[tuple[int, int]]) -> int:
    """Hops between the two nodes that are farthest apart."""
    near = [{i} for i in range(NODES)]
    hops = 0
    while any(len(found) < NODES for found in near):
        step = [set(found) for found in near]
        for i, j in joined:
            step[i] |= near[j]
            step[j] |= near[i]
        near, hops = step, hops + 1
    return hops


def row(middle: float, title: str, added: list[tuple[int, int]]) -> list[str]:
    """The graph, with random edges on top."""
    at = [(x, middle + y) for x, y in places()]
    hops = most_hops([*edges(), *added])
    shapes = [
        text(28, middle - 6, title, 21, anchor="start", font_weight="bold"),
        text(28, middle + 24, f"{hops} hops at most", 20, GREY, "start"),
    ]
    shapes += [line(at[i], at[j]) for i, j in edges()]
    for pair in added:
        a, b = sorted(at[node] for node in pair)  # from left to right
        below = a[1] + b[1] > 2 * middle + 1
        shapes.append(line(a, b, ADDED, 2.5, -0.14 if below else 0.14, True))
    return shapes + [dot(place) for place in at]


def draw() -> str:
    """The figure."""
    shapes = row(96, "input graph", [])
    for number, seed in enumerate((8, 25), 1):
        top = 6 + number * ROW
        shapes.append(line((14, top), (WIDTH - 14, top), PALE, 1.5))
        shapes += row(top + ROW / 2, f"rewiring {number}", drawn(seed))
    title = "Two rings and a bridge, and two random rewirings of them by one permutation each"
    return card(WIDTH, 3 * ROW + 12, title, shapes)


if __name__ == "__main__":
    write(draw(), __file__)

"""Draws architecture.svg: GRASS from a graph to a prediction.

Run: python docs/figures/architecture.py
"""

from __future__ import annotations

from drawing import (
    ADDED,
    EDGE,
    GREY,
    INK,
    NODE,
    WALK,
    Point,
    box,
    card,
    cell,
    dot,
    line,
    shade,
    text,
    write,
)

WIDTH, HEIGHT = 840, 640
# Two triangles that hang together by a single edge, in a box of 190 × 130.
PLACES: list[Point] = [(18, 20), (18, 110), (70, 65), (128, 65), (180, 20), (180, 110)]
EDGES = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (3, 5), (4, 5)]
# One permutation, here a single cycle through all nodes: two random edges a node.
RANDOM = [(0, 4, 0.1), (2, 4, 0.2), (2, 5, -0.2), (1, 5, -0.1), (1, 3, -0.2), (0, 3, 0.2)]


def graph(left: float, top: float, added: bool) -> list[str]:
    """The small graph, with or without random edges."""
    at = [(left + x, top + y) for x, y in PLACES]
    shapes = [line(at[i], at[j]) for i, j in EDGES]
    if added:
        shapes += [line(at[i], at[j], ADDED, 2.5, bend, True) for i, j, bend in RANDOM]
    return shapes + [dot(place) for place in at]


def matrix(left: float, top: float, size: float, values: list[list[float]]) -> list[str]:
    """A heat map of walk probabilities."""
    step = size / len(values)
    cells = [
        cell(left + column * step, top + row * step, step, step, shade(value**0.6))
        for row, line_of in enumerate(values)
        for column, value in enumerate(line_of)
    ]
    return [*cells, box(left, top, size, size, stroke=GREY, radius=0)]


def powers(count: int) -> list[list[list[float]]]:
    """T, T², … of the small graph."""
    nodes = range(len(PLACES))
    joined = [[float((i, j) in EDGES or (j, i) in EDGES) for j in nodes] for i in nodes]
    step = [[value / sum(row) for value in row] for row in joined]
    found = [step]
    while len(found) < count:
        found.append(
            [[sum(row[m] * step[m][j] for m in nodes) for j in nodes] for row in found[-1]]
        )
    return found


def heading(x: float, y: float, number: int, words: str) -> list[str]:
    """A number in a circle and a title."""
    return [
        dot((x + 14, y - 7), 14, INK, str(number)),
        text(x + 36, y, words, 22, anchor="start", font_weight="bold"),
    ]


def encoding() -> list[str]:
    """Panel 1: the graph and its walks."""
    shapes = [box(14, 14, 400, 270), *heading(30, 48, 1, "Random-walk encoding")]
    shapes += graph(32, 88, added=False)
    shapes.append(line((238, 153), (270, 153), INK, 2.5, arrow="ink"))
    for number, values in reversed(list(enumerate(powers(3)))):
        left, top = 284 + 14 * number, 104 - 14 * number
        shapes += [cell(left, top, 92, 92, "#ffffff"), *matrix(left, top, 92, values)]
    shapes.append(text(344, 222, "T, T², …, T^k", 20, WALK))
    shapes.append(text(214, 262, "nodes get P_ii, pairs of nodes P_ij ‖ P_ji", 20))
    return shapes


def rewiring() -> list[str]:
    """Panel 2: random edges on top."""
    return [
        box(426, 14, 400, 270),
        *heading(442, 48, 2, "Random rewiring"),
        *graph(527, 88, added=True),
        text(626, 262, "new random edges at every step", 20),
    ]


def layer(left: float, name: str, flipped: bool) -> list[str]:
    """One layer: the edge weighs what its tail takes from its head."""
    i, j, middle = (left + 36, 454.0), (left + 194, 454.0), (left + 115, 454.0)
    head, tail = (j, i) if flipped else (i, j)
    inwards = -1 if flipped else 1  # from the head to the tail
    return [
        box(left, 346, 230, 204, "#f6f9f7"),
        text(middle[0], 372, name, 20, GREY),
        text(middle[0], 402, "softmax(W e_ij)", 20),
        line(head, tail, EDGE, 5, arrow="edge", gap=25),
        dot(i, 22, NODE, "x_i"),
        dot(j, 22, NODE, "x_j"),
        box(middle[0] - 26, 433, 52, 42, "#ffffff", EDGE, 8),
        text(middle[0], 461, "e_ij", 22, EDGE),
        line((middle[0], 431), (tail[0], 430), INK, 2, 0.24 * inwards, arrow="ink"),
        line((i[0] + 12, 476), (middle[0] - 8, 478), GREY, 2, -0.3, arrow="ink"),
        line((j[0] - 12, 476), (middle[0] + 8, 478), GREY, 2, 0.3, arrow="ink"),
        text(head[0], 502, "head", 19, GREY),
        text(tail[0], 502, "tail", 19, GREY),
        text(middle[0], 536, "e learns from both", 19),
    ]


def layers() -> list[str]:
    """Panel 3: two layers, between which edges flip."""
    return [
        box(14, 296, 534, 330),
        *heading(30, 330, 3, "L layers of attention on edges"),
        *layer(30, "layer 1", flipped=False),
        line((263, 454), (299, 454), INK, 3, arrow="ink"),
        *layer(302, "layer 2", flipped=True),
        text(281, 582, "Head and tail change roles after each layer.", 20),
        text(281, 610, "For x and e: MLP, residual, batch norm", 20, GREY),
    ]


def pooling() -> list[str]:
    """Panel 4: three sums."""
    shapes = [box(560, 296, 266, 176), *heading(576, 330, 4, "Pooling")]
    for row, (words, colour) in enumerate([("nodes", NODE), ("edges", EDGE), ("added", ADDED)]):
        top = 350 + 38 * row
        shapes.append(text(580, top + 22, f"Σ {words}", 20, colour, "start"))
        for place in range(6):
            fill = shade((0.95, 0.35, 0.7, 0.25, 0.85, 0.5)[(place + 2 * row) % 6], colour)
            shapes.append(cell(690 + 19 * place, top + 4, 19, 24, fill))
    return shapes


def head() -> list[str]:
    """Panel 5: what comes out."""
    return [
        box(560, 484, 266, 142),
        *heading(576, 518, 5, "Prediction head"),
        text(693, 564, "ŷ ± std", 26, INK, font_weight="bold"),
        text(693, 598, "over rewirings", 20, GREY),
    ]


def draw() -> str:
    """The figure."""
    title = (
        "GRASS: random-walk encoding, random rewiring, layers of attention on edges that flip "
        "from layer to layer, pooling of nodes, edges and added edges, and a head"
    )
    shapes = [*encoding(), *rewiring(), *layers(), *pooling(), *head()]
    return card(WIDTH, HEIGHT, title, shapes)


if __name__ == "__main__":
    write(draw(), __file__)

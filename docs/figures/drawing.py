"""The few shapes that the figures of the docs are drawn with, as SVG text.

Figures are a white card, so that they can be read on light and dark pages, about 800 units wide
with letters of 19 and more, so that they can be read on a phone.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

INK, GREY, PALE = "#24323d", "#5f6f7a", "#e3e9ec"
NODE, EDGE, ADDED, WALK = "#2f8f4e", "#53636e", "#d9590b", "#2368b0"
FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"

Point = tuple[float, float]


def card(width: int, height: int, title: str, shapes: Iterable[str]) -> str:
    """A whole figure; ``title`` is what a screen reader says."""
    arrows = "".join(
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="13" '
        'markerHeight="13" markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
        for name, colour in (("ink", INK), ("edge", EDGE), ("added", ADDED))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" font-family="{FONT}">',
            f"<title>{escape(title)}</title>",
            f"<defs>{arrows}</defs>",
            box(0.5, 0.5, width - 1, height - 1, fill="#ffffff", stroke=PALE, radius=14),
            *shapes,
            "</svg>\n",
        ]
    )


def text(
    x: float, y: float, words: str, size: int = 20, fill: str = INK, anchor: str = "middle", **more
) -> str:
    """A line of text; ``x_i`` becomes x with a subscript, ``x^i`` with a superscript."""
    attributes = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in more.items())
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
        f"{attributes}>{_with_scripts(words, size)}</text>"
    )


def _with_scripts(words: str, size: int) -> str:
    """Letters behind ``_`` and ``^`` lowered or raised, to the next space or bracket."""
    parts, back = [], ""
    place = 0
    while place < len(words):
        letter = words[place]
        if letter in "_^" and place + 1 < len(words):
            end = place + 1
            while end < len(words) and (words[end].isalnum() or words[end] in "→⁺"):
                end += 1
            shift = round(size * (0.22 if letter == "_" else -0.38))
            script = escape(words[place + 1 : end])
            parts.append(f'<tspan dy="{shift}" font-size="{round(size * 0.72)}">{script}</tspan>')
            back = f' dy="{-shift}"'
            place = end
            continue
        end = place
        while end < len(words) and words[end] not in "_^":
            end += 1
        plain = escape(words[place:end])
        parts.append(f"<tspan{back}>{plain}</tspan>" if back else plain)
        back, place = "", end
    return "".join(parts)


def box(
    x: float, y: float, w: float, h: float, fill: str = "none", stroke: str = PALE, radius: int = 10
) -> str:
    """A rectangle with round corners."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{radius}" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="1.5"/>'
    )


def cell(x: float, y: float, w: float, h: float, fill: str) -> str:
    """A rectangle of one colour, as in a heat map."""
    return f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="{fill}"/>'


def dot(at: Point, radius: float = 11, fill: str = NODE, label: str = "") -> str:
    """A node."""
    circle = f'<circle cx="{at[0]:g}" cy="{at[1]:g}" r="{radius:g}" fill="{fill}"/>'
    name = text(at[0], at[1] + radius * 0.45, label, round(radius * 1.25), "#ffffff")
    return circle + (name if label else "")


def line(
    a: Point,
    b: Point,
    stroke: str = EDGE,
    width: float = 3,
    bend: float = 0.0,
    dashed: bool = False,
    arrow: str = "",
    gap: float = 0.0,
) -> str:
    """A line from a to b.

    Args:
        a: Where it starts.
        b: Where it ends.
        stroke: Its colour.
        width: Its width.
        bend: How far it bows to its left, as a share of its length.
        dashed: Whether it is dashed.
        arrow: Name of the arrow's colour in :func:`card`, for a head at b.
        gap: How far from a and b it stays, for nodes of that radius.
    """
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = (dx * dx + dy * dy) ** 0.5
    middle = ((a[0] + b[0]) / 2 + dy * bend, (a[1] + b[1]) / 2 - dx * bend)
    a, b = _towards(a, middle, gap), _towards(b, middle, gap)
    way = f"Q{middle[0]:.1f} {middle[1]:.1f} " if bend and length else "L"
    style = ' stroke-dasharray="7 5"' if dashed else ""
    head = f' marker-end="url(#{arrow})"' if arrow else ""
    return (
        f'<path d="M{a[0]:.1f} {a[1]:.1f}{way}{b[0]:.1f} {b[1]:.1f}" fill="none" '
        f'stroke="{stroke}" stroke-width="{width:g}" stroke-linecap="round"{style}{head}/>'
    )


def _towards(start: Point, aim: Point, by: float) -> Point:
    dx, dy = aim[0] - start[0], aim[1] - start[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    return start[0] + dx / length * by, start[1] + dy / length * by


def shade(value: float, colour: str = WALK) -> str:
    """A colour between white (0) and ``colour`` (1)."""
    value = min(max(value, 0.0), 1.0)
    parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - part) * value):02x}" for part in parts)


def write(figure: str, script: str) -> None:
    """Put a figure beside the script that drew it."""
    Path(script).with_suffix(".svg").write_text(figure, encoding="utf-8")

"""Matplotlib figures as inline SVG: text follows the page's theme and has a text alternative."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any

import matplotlib
from cycler import cycler
from matplotlib.figure import Figure

from grass_gnn.report.table import ReportTable

INK = "#010203"  # placeholder, replaced by the page's text colour
COLORS = [
    "#3b82c4",
    "#e07b39",
    "#4aa564",
    "#c9506e",
    "#8e6bbf",
    "#b08a2e",
    "#2f9c9c",
    "#b0609f",
    "#7a8b99",
    "#d06a52",
]  # readable on white and on near-black
ACCENT = COLORS[2]  # the highlighted line of a chart
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "grass-gnn",  # the same figure gives the same file
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.prop_cycle": cycler(color=COLORS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "lines.linewidth": 1.6,
}


@dataclass(frozen=True)
class ReportFigure:
    """A chart, its text alternative and its numbers."""

    name: str
    title: str
    svg: str
    text: str  # text alternative
    numbers: ReportTable | None = None
    note: str = ""

    @property
    def file(self) -> str:
        """The chart as a standalone file, dark on white in any theme."""
        look = "background: white; color: #1c2320; font-family: system-ui, sans-serif"
        return self.svg.replace("<svg ", f'<svg style="{look}" ', 1)


@dataclass
class Drawing:
    """A matplotlib figure, and its SVG once it is finished."""

    figure: Figure
    result: list[str] = field(default_factory=list)

    @property
    def svg(self) -> str:
        """The finished SVG."""
        return self.result[0]


@contextmanager
def drawing(name: str, text: str, width: float = 5.0, height: float = 3.1) -> Iterator[Drawing]:
    """Draw on a new figure, which becomes an SVG when the block ends.

    Args:
        name: Prefix that makes ids unique among the figures of a page.
        text: Alternative text.
        width: In inches.
        height: In inches.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        draft = Drawing(figure)
        yield draft
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    draft.result.append(_for_page(file.getvalue(), name, text))


def axes(draft: Drawing, *shape: int, **settings: Any) -> Any:
    """Axes of a drawing, with a faint grid."""
    made = draft.figure.subplots(*shape, **settings)
    for one in made.flat if hasattr(made, "flat") else [made]:
        one.grid(True, color=INK, alpha=0.13, linewidth=0.6)
        one.set_axisbelow(True)
        for label in (one.xaxis.label, one.yaxis.label):  # names of targets may have dollar signs
            label.set_parse_math(False)
    return made


def diagonal(ax: Any, limits: tuple[float, float] = (0.0, 1.0)) -> None:
    """Make a panel square, and draw the line on which both axes agree."""
    ax.plot(limits, limits, color=INK, alpha=0.55, linewidth=1, linestyle=(0, (4, 3)))
    ax.set(aspect="equal", xlim=limits, ylim=limits)


def picture(svg: str) -> str:
    """An SVG as a data URL: scripts do not run in images."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _for_page(svg: str, name: str, text: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = re.sub(r'xlink:href="#([^"]+)"', rf'xlink:href="#{name}-\1"', svg)
    svg = svg.replace(INK, "currentColor")
    # Fonts come from the page; a family named here would override it.
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    label = f'role="img" aria-label="{escape(text, quote=True)}" '
    return svg.replace("<svg ", f"<svg {label}", 1)

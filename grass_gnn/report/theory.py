"""The page of ``grass-gnn reproduce theory``: the appendix's formulas and sampled graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grass_gnn.experiments.theory import DEGREES, Point, Theory
from grass_gnn.report.figures import rewiring_figure
from grass_gnn.report.render import Section, write_page
from grass_gnn.report.svg import COLORS, INK, ReportFigure, axes, drawing
from grass_gnn.report.table import Entry, ReportTable


@dataclass(frozen=True)
class Check:
    """A claim, and whether sampled graphs agree with it."""

    claim: str
    agrees: bool
    measured: str


def checks(theory: Theory) -> list[Check]:
    """All claims of the appendix about random regular graphs."""
    found = [
        _bound(
            "The diameter is at most the smallest d with (r − 1)^(d − 1) ≥ 2 r |V| log |V|",
            theory.diameter,
            upper=True,
        ),
        _bound(
            "The effective resistance between any two nodes is at most the diameter",
            theory.resistance,
            upper=True,
        ),
        _bound(
            "The spectral gap λ₁ is greater than r − 2√(r − 1) − 1",
            theory.spectral_gap,
            upper=False,
        ),
        _connected(
            "The vertex connectivity is r for graphs that are drawn without loops and repeats",
            theory.connectivity,
        ),
        _connected(
            "… and for graphs whose loops and repeats were removed, as in GRASS",
            theory.connectivity_removed,
        ),
    ]
    for draw in theory.simple:
        p = draw.permutations
        for name, formula in (
            (f"exp(−(r²/2 + r)) of equation (6), r = {2 * p}", draw.paper),
            (f"the same with r = {p}, the number of permutations", draw.paper_by_permutations),
            (f"exp(−(p² + p/2)), p = {p}", draw.limit),
        ):
            # Graphs of 400 nodes are close to the limit of infinite size, but not at it.
            agrees = abs(draw.share - formula) < 4 * draw.error + 0.02 * formula
            told = (
                f"probability {draw.share:.4g} ± {draw.error:.1g} ({draw.found} of {draw.draws:,} "
                f"draws), formula {formula:.4g}; trials {draw.trials:.4g}, formula "
                f"{1 / formula:,.4g}"
            )
            found.append(Check(f"The probability of a simple graph is {name}", agrees, told))
    return found


def _bound(claim: str, points: Sequence[Point], upper: bool) -> Check:
    good = [p.extreme <= p.formula if upper else p.extreme > p.formula for p in points]
    told = f"{sum(good)} of {len(good)} sizes and degrees (worst of {points[0].samples} samples)"
    failing = [
        f"|V| = {p.nodes}, r = {p.degree}" for p, ok in zip(points, good, strict=True) if not ok
    ]
    return Check(claim, all(good), told + (f"; fails for {', '.join(failing)}" if failing else ""))


def _connected(claim: str, points: Sequence[Point]) -> Check:
    told = ", ".join(f"{p.measured:.0%} at |V| = {p.nodes}" for p in points)
    largest = points[-1].measured
    return Check(claim, largest >= 0.95, f"r = 4: {told}")


def theory_section(theory: Theory) -> Section:
    """The table of claims, and charts."""
    found = checks(theory)
    rows = [
        [Entry(c.claim), Entry("agrees" if c.agrees else "disagrees"), Entry(c.measured)]
        for c in found
    ]
    table = ReportTable(
        "theory",
        "Claims of the appendix",
        ["Claim", "Simulation", "Measured"],
        rows,
        "Graphs are sampled with the permutation model of this package. The claims are about "
        "|V| → ∞: a bound may fail for small |V| without contradicting them, but the value of a "
        "formula should agree.",
        {place for place, c in enumerate(found) if not c.agrees},
        prose=True,
    )
    figures = [
        _against_nodes("diameter", "Diameter", theory.diameter, "bound"),
        _against_nodes("gap", "Spectral gap", theory.spectral_gap, "bound"),
        _against_nodes("resistance", "Effective resistance", theory.resistance, "diameter"),
        _connectivity_figure(theory),
        _simple_figure(theory),
    ]
    wrong = sum(not c.agrees for c in found)
    introduction = f"{len(found) - wrong} of {len(found)} claims agree with sampled graphs."
    return Section("theory", "Random regular graphs", introduction, [], [table], figures)


def _against_nodes(name: str, title: str, points: Sequence[Point], formula: str) -> ReportFigure:
    told = "; ".join(
        f"r = {p.degree}, {p.nodes} nodes: {p.measured:.3g} ({formula} {p.formula:.3g})"
        for p in points
        if p.nodes == points[-1].nodes
    )
    text = f"{title} against the number of nodes, measured and {formula}. {told}."
    with drawing(f"theory-{name}", text) as draft:
        ax = axes(draft)
        for r, color in zip(DEGREES, COLORS, strict=False):
            line = [p for p in points if p.degree == r]
            nodes = [p.nodes for p in line]
            ax.plot(nodes, [p.measured for p in line], "o-", color=color, label=f"r = {r}", ms=4)
            ax.plot(nodes, [p.formula for p in line], "--", color=color, linewidth=1.1)
        ax.set(xscale="log", xlabel="nodes |V|", ylabel=title.lower())
        sizes = sorted({p.nodes for p in points})
        ax.set_xticks(sizes, [str(size) for size in sizes])
        ax.minorticks_off()
        ax.plot([], [], "--", color=INK, linewidth=1.1, label=formula)
        draft.figure.legend(loc="outside lower left", ncols=4)
    rows = [
        [
            Entry(f"r = {p.degree}"),
            *map(
                Entry, (str(p.nodes), f"{p.measured:.3f}", f"{p.extreme:.3f}", f"{p.formula:.3f}")
            ),
        ]
        for p in points
    ]
    numbers = ReportTable(name, "Show the numbers", ["", "nodes", "mean", "worst", formula], rows)
    return ReportFigure(f"theory-{name}", title, draft.svg, text, numbers)


def _connectivity_figure(theory: Theory) -> ReportFigure:
    kinds = (
        ("drawn without repeats", theory.connectivity),
        ("repeats removed", theory.connectivity_removed),
    )
    text = (
        "Share of graphs with r = 4 that have vertex connectivity 4, by number of nodes. "
        + "; ".join(
            f"{kind}: " + ", ".join(f"{p.measured:.0%} of {p.nodes} nodes" for p in points)
            for kind, points in kinds
        )
    )
    with drawing("theory-connectivity", text) as draft:
        ax = axes(draft)
        for kind, points in kinds:
            ax.plot([p.nodes for p in points], [p.measured for p in points], "o-", label=kind, ms=4)
        ax.set(xlabel="nodes |V|", ylabel="share with connectivity r", ylim=(-0.05, 1.05))
        draft.figure.legend(loc="outside lower left", ncols=2)
    return ReportFigure("theory-connectivity", "Vertex connectivity, r = 4", draft.svg, text)


def _simple_figure(theory: Theory) -> ReportFigure:
    text = "Probability that a drawn graph is simple, by number of permutations. " + "; ".join(
        f"{d.permutations}: measured {d.share:.4f}, exp(−(p² + p/2)) {d.limit:.4f}, "
        f"equation (6) {d.paper:.2g}"
        for d in theory.simple
    )
    draws = theory.simple
    x = [d.permutations for d in draws]
    with drawing("theory-simple", text, height=3.5) as draft:
        ax: Any = axes(draft)
        ax.errorbar(
            x,
            [d.share for d in draws],
            [2 * d.error for d in draws],
            fmt="o",
            color=INK,
            capsize=4,
            label="measured, ± 2 standard errors",
        )
        for label, values in (
            ("exp(−(p² + p/2))", [d.limit for d in draws]),
            ("equation (6), r permutations", [d.paper_by_permutations for d in draws]),
            ("equation (6), r / 2 permutations", [d.paper for d in draws]),
        ):
            ax.plot(x, values, "--", label=label)
        ax.set(yscale="log", xlabel="permutations p", ylabel="probability", xticks=x)
        draft.figure.legend(loc="outside lower left", ncols=2)
    return ReportFigure("theory-simple", "Probability of a simple graph", draft.svg, text)


def write_theory_page(theory: Theory, path: str | Path) -> Path:
    """Write the page, and its tables and figures as files next to it."""
    drawn = Section("rewiring", "Random rewiring", figures=[rewiring_figure()])
    return write_page(
        [theory_section(theory), drawn],
        path,
        "GRASS: theory and simulation",
        "Formulas from the appendix of “Greener GRASS”, compared with sampled graphs.",
        files=Path(path).parent,
    )

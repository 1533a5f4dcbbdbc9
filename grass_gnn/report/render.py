"""The parts of a report page, and their rendering as one self-contained HTML file."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from grass_gnn.files import write_text
from grass_gnn.report.svg import ReportFigure
from grass_gnn.report.table import ReportTable


@dataclass(frozen=True)
class Detail:
    """Text or a table in a collapsed section."""

    title: str
    text: str = ""
    table: ReportTable | None = None


@dataclass(frozen=True)
class DrawnMolecule:
    """A molecule with its picture and values."""

    name: str
    smiles: str
    facts: list[tuple[str, str]]
    picture: str = ""  # data URL of an image; empty if it cannot be drawn


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    name: str
    title: str
    introduction: str = ""
    warnings: list[str] = field(default_factory=list)
    tables: list[ReportTable] = field(default_factory=list)
    figures: list[ReportFigure] = field(default_factory=list)
    details: list[Detail] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    molecules: list[DrawnMolecule] = field(default_factory=list)


def write_page(
    sections: Sequence[Section],
    path: str | Path,
    title: str,
    subtitle: str = "",
    files: str | Path | None = None,
) -> Path:
    """Write a page.

    Args:
        sections: Sections of the page.
        path: The HTML file.
        title: Its title.
        subtitle: A sentence below the title.
        files: Folder for the page's tables (Markdown, CSV and LaTeX in ``tables``) and charts (SVG
            in ``figures``); they are not written if it is not given.
    """
    path = Path(path)
    environment = Environment(
        loader=PackageLoader("grass_gnn", "report"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["svg"] = Markup  # drawn by us, with all text escaped
    environment.filters["together"] = _together
    page = environment.get_template("page.html").render(
        title=title,
        subtitle=subtitle,
        sections=sections,
        date=datetime.date.today().isoformat(),
        marked=any(entry.mark for s in sections for t in s.tables for r in t.rows for entry in r),
        has_files=files is not None,
    )
    write_text(path, page)
    if files is not None:
        _write_files(sections, Path(files))
    return path


def _write_files(sections: Sequence[Section], folder: Path) -> None:
    for table in (table for section in sections for table in section.tables):
        for ending, text in (
            ("md", table.to_markdown()),
            ("csv", table.to_csv()),
            ("tex", table.to_latex()),
        ):
            write_text(folder / "tables" / f"{table.name}.{ending}", text)
    for figure in (figure for section in sections for figure in section.figures):
        write_text(folder / "figures" / f"{figure.name}.svg", figure.file)


def _together(text: str) -> str:
    """Replace the spaces inside numbers by non-breaking ones."""
    for before, after in (("± ", "±\u00a0"), ("n = ", "n\u00a0=\u00a0"), (" %", "\u00a0%")):
        text = text.replace(before, after)
    return text

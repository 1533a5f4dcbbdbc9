"""One self-contained page from runs and grids, and the files of its tables and figures."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from grass_gnn.errors import GrassError, first_line
from grass_gnn.experiments.job import RESULTS
from grass_gnn.experiments.measured import GridRecord, RunRecord, is_grid
from grass_gnn.files import write_text
from grass_gnn.report.comparison import claims_table, comparison_tables
from grass_gnn.report.figures import (
    grid_figures,
    predicted_against_true,
    rewiring_figure,
    training_curves,
)
from grass_gnn.report.svg import ReportFigure
from grass_gnn.report.table import Entry, ReportTable, number
from grass_gnn.tasks import METRICS


@dataclass(frozen=True)
class Detail:
    """What stands behind a section, for those who open it."""

    title: str
    text: str


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


def write_report(folders: Sequence[str | Path], path: str | Path) -> Path:
    """Write the page of some runs and grids.

    Args:
        folders: Folders of runs (``grass-gnn train``) or of grids (``grass-gnn reproduce``).
        path: The page; Markdown, CSV and LaTeX of its tables go into ``tables`` beside it, its
            charts into ``figures``.
    """
    sections: list[Section] = []
    grids: list[GridRecord] = []
    for folder in map(Path, folders):
        if is_grid(folder):
            with _one_sentence(folder):
                grid = GridRecord.open(folder)
                name = grid.experiment.name
                if any(section.name == name for section in sections):
                    grid = grid.renamed(f"{name}-{len(sections)}")
                grids.append(grid)
                sections.append(grid_section(grid))
        elif (folder / RESULTS).is_file():
            with _one_sentence(folder):
                sections.append(run_section(folder, f"run-{len(sections)}"))
        else:
            raise GrassError(f"{folder} holds no finished run, and no grid of them.")
    if grids:
        claims = claims_table(grids)
        if claims.rows:
            sections.append(Section("claims", "Claims of the text", tables=[claims]))
    sections.append(Section("rewiring", "Random rewiring", figures=[rewiring_figure()]))
    return write_page(sections, path)


@contextlib.contextmanager
def _one_sentence(folder: Path) -> Iterator[None]:
    """Results are read as we write them; others, whoever wrote them, are damaged."""
    try:
        yield
    except GrassError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as error:
        raise GrassError(f"The results in {folder} are damaged: {first_line(error)}.") from error


def write_page(
    sections: Sequence[Section], path: str | Path, title: str = "GRASS, measured"
) -> Path:
    """Render sections, and write their tables and figures beside the page."""
    path = Path(path)
    environment = Environment(
        loader=PackageLoader("grass_gnn", "report"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["svg"] = Markup  # our own drawing, whose texts are escaped already
    environment.filters["together"] = _together
    today = datetime.date.today().isoformat()
    page = environment.get_template("page.html").render(title=title, sections=sections, date=today)
    write_text(path, page)
    for table in (table for section in sections for table in section.tables):
        for ending, text in (
            ("md", table.to_markdown()),
            ("csv", table.to_csv()),
            ("tex", table.to_latex()),
        ):
            write_text(path.parent / "tables" / f"{table.name}.{ending}", text)
    for figure in (figure for section in sections for figure in section.figures):
        write_text(path.parent / "figures" / f"{figure.name}.svg", figure.file)
    return path


def grid_section(grid: GridRecord) -> Section:
    """A grid: the paper beside what was measured."""
    runs = grid.all_runs
    warnings = []
    if not grid.budget.is_paper:
        warnings.append(f"Measured with {grid.budget.describe()}. Not the paper's full effort.")
    warnings += list(dict.fromkeys(w for run in runs for w in _data_warnings(run)))
    warnings += [f"{place} failed: {error}" for place, error in grid.failures.items()]
    if grid.unfinished:
        warnings.append(f"Not finished yet: {', '.join(grid.unfinished)}.")
    seeds = len({run.results["seed"] for run in runs})
    introduction = f"{len(runs)} finished runs, {seeds} {'seed' if seeds == 1 else 'seeds'}."
    details = [Detail("All runs", _runs_text(runs)), *_details(runs[:1])] if runs else []
    return Section(
        grid.experiment.name,
        grid.experiment.title,
        introduction,
        warnings,
        comparison_tables(grid),
        grid_figures(grid),
        details,
    )


def run_section(folder: Path, name: str) -> Section:
    """A single run."""
    run = RunRecord(folder)
    metric = METRICS[run.config.task.metric].title
    rows = []
    for split, label in (("val", "validation"), ("test", "test")):
        if split in run.results:
            scores = run.results[split]
            low, high = scores["interval"]
            averaged = {int(count): value for count, value in scores["averaged"].items()}
            rows.append(
                [
                    Entry(label),
                    Entry(number(scores["mean"])),
                    Entry(f"{number(low)} to {number(high)}"),
                    Entry(number(scores["variance"] ** 0.5, 3)),
                    Entry(f"{number(averaged[max(averaged)])} (over {max(averaged)})"),
                ]
            )
    columns = ["", metric, "95 % interval", "s.d. due to rewiring", "predictions averaged"]
    table = ReportTable(f"{name}-scores", f"Scores of {folder.name}", columns, rows)
    figures = [training_curves(name, [(folder.name, run)]), predicted_against_true(name, run)]
    return Section(
        name,
        folder.resolve().name,
        "",
        _data_warnings(run),
        [table],
        [figure for figure in figures if figure is not None],
        _details([run]),
    )


def _data_warnings(run: RunRecord) -> list[str]:
    data = run.results["data"]["fingerprint"]
    if run.results.get("official", True) or data["name"] in (None, "graphs"):
        return []
    return [
        f"Not the official {data['name']} data ({'; '.join(data['differences'])}): not "
        "a benchmark result."
    ]


def _details(runs: Sequence[RunRecord]) -> list[Detail]:
    """Configuration, data and hardware of the first run."""
    details = []
    for run in runs:
        config = (run.folder / "config.toml").read_text("utf-8")
        details += [
            Detail(f"Configuration (seed {run.results['seed']})", config),
            Detail("Data", _pretty(run.results["data"])),
            Detail("Hardware and versions", _pretty(run.results["hardware"])),
        ]
    return details


def _runs_text(runs: Sequence[RunRecord]) -> str:
    lines = []
    for run in runs:
        training = run.results["training"]
        lines.append(
            f"{run.card['cell']}, seed {run.card['seed']}: {training['epochs']} epochs in "
            f"{training['seconds']:.0f} s, {run.card['parameters']:,} parameters, "
            f"{run.config.model.layers} layers, changed {json.dumps(run.card['settings'])}, "
            f"data {run.results['data']['fingerprint']['hash'][:12]}"
        )
    return "\n".join(lines)


def _together(text: str) -> str:
    """A number that breaks into lines only before its spread."""
    for before, after in (("± ", "±\u00a0"), ("n = ", "n\u00a0=\u00a0"), (" %", "\u00a0%")):
        text = text.replace(before, after)
    return text


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)

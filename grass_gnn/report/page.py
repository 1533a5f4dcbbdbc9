"""Report pages: about one or more runs, or about grids compared with the paper."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from grass_gnn.errors import GrassError, first_line
from grass_gnn.evaluation.trained import refuse_folds
from grass_gnn.experiments.job import RESULTS
from grass_gnn.experiments.measured import GridRecord, RunRecord, is_grid
from grass_gnn.files import read_text
from grass_gnn.report.comparison import claims_table, comparison_tables
from grass_gnn.report.figures import grid_figures, rewiring_figure
from grass_gnn.report.render import Detail, Section, write_page
from grass_gnn.report.run import data_table, data_warnings, hardware_table, run_sections

PAPER = (
    "Results of the paper “Greener GRASS: Enhancing GNNs with Encoding, Rewiring, and Attention” "
    "next to those measured with grass-gnn."
)


def write_report(
    folders: Sequence[str | Path], path: str | Path, files: str | Path | None = None
) -> Path:
    """Write a report page about runs and grids.

    Args:
        folders: Folders of runs (``grass-gnn train``) or of grids (``grass-gnn reproduce``).
        path: The page.
        files: Folder for the page's tables and charts as separate files (optional).
    """
    sections: list[Section] = []
    grids: list[GridRecord] = []
    runs: list[str] = []
    for folder in map(Path, folders):
        if is_grid(folder):
            with _damage_reported(folder):
                grid = GridRecord.open(folder)
                name = grid.experiment.name
                if any(section.name == name for section in sections):
                    grid = grid.renamed(f"{name}-{len(sections)}")
                grids.append(grid)
                sections.append(grid_section(grid))
        elif (folder / RESULTS).is_file():
            with _damage_reported(folder):
                runs.append(folder.resolve().name)
                prefix = "" if len(folders) == 1 else f"{runs[-1]}: "
                sections += run_sections(folder, f"run-{len(runs)}", prefix)
        else:
            refuse_folds(folder)
            raise GrassError(f"{folder} contains neither a finished run nor a grid of runs.")
    if not grids:
        title = runs[0] if len(runs) == 1 else f"{len(runs)} runs"
        return write_page(sections, path, f"Report: {title}", files=files)
    claims = claims_table(grids)
    if claims.rows:
        sections.append(Section("claims", "Claims in the text", tables=[claims]))
    sections.append(Section("rewiring", "Random rewiring", figures=[rewiring_figure()]))
    return write_page(sections, path, "GRASS, measured", PAPER, files)


@contextlib.contextmanager
def _damage_reported(folder: Path) -> Iterator[None]:
    """Raise one clear error where the files of a run are not as we write them."""
    try:
        yield
    except GrassError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as error:
        raise GrassError(f"The results in {folder} are damaged: {first_line(error)}.") from error


def grid_section(grid: GridRecord) -> Section:
    """The section of a grid: published and measured results."""
    runs = grid.all_runs
    warnings = []
    if not grid.budget.is_paper:
        warnings.append(f"Measured with {grid.budget.describe()}, not as in the paper.")
    warnings += list(dict.fromkeys(w for run in runs for w in data_warnings(run)))
    warnings += [f"{place} failed: {error}" for place, error in grid.failures.items()]
    if grid.unfinished:
        warnings.append(f"Not finished yet: {', '.join(grid.unfinished)}.")
    seeds = len({run.results["seed"] for run in runs})
    introduction = f"{len(runs)} finished runs, {seeds} {'seed' if seeds == 1 else 'seeds'}."
    return Section(
        grid.experiment.name,
        grid.experiment.title,
        introduction,
        warnings,
        comparison_tables(grid),
        grid_figures(grid),
        _grid_details(grid.experiment.name, runs) if runs else [],
    )


def _grid_details(name: str, runs: Sequence[RunRecord]) -> list[Detail]:
    """All runs in a line each; configuration, data and hardware of the first."""
    first = runs[0]
    return [
        Detail("All runs", "\n".join(map(_run_line, runs))),
        Detail(
            f"Configuration (seed {first.results['seed']})",
            read_text(first.folder / "config.toml"),
        ),
        Detail("Data", table=data_table(name, first)),
        Detail("Hardware and versions", table=hardware_table(name, first)),
    ]


def _run_line(run: RunRecord) -> str:
    training = run.results["training"]
    changed = [f"{name}={json.dumps(value)}" for name, value in run.card["settings"].items()]
    return (
        f"{run.card['cell']}, seed {run.card['seed']}: {training['epochs']} epochs in "
        f"{training['seconds']:,.0f} s, {run.card['parameters']:,} parameters, "
        f"{run.config.model.layers} layers, data "
        f"{run.results['data']['fingerprint']['hash'][:12]}"
        f"{', with ' if changed else ''}{', '.join(changed)}"
    )

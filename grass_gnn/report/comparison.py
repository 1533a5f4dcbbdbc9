"""Tables that compare the paper's numbers with measured ones."""

from __future__ import annotations

from collections.abc import Sequence

from grass_gnn.config import GRASSConfig
from grass_gnn.experiments.catalogue import Cell, Filling
from grass_gnn.experiments.claims import Claim, paper_claims, published_value
from grass_gnn.experiments.evidence import SMALL, Evidence
from grass_gnn.experiments.measured import GridRecord
from grass_gnn.experiments.published import GRASS_ROW, published_table
from grass_gnn.report.table import (
    BEST,
    EMPTY,
    SECOND,
    Entry,
    ReportTable,
    measured_text,
    published_text,
)

ARROWS = {"lower": "↓", "higher": "↑"}
COSTS = {
    "variance": "Variance due to rewiring",
    "epoch_seconds": "Training time per epoch (s)",
    "peak_memory": "Peak memory (MiB)",
    "preparation_seconds": "Preprocessing time",
}


def comparison_tables(grid: GridRecord) -> list[ReportTable]:
    """All tables of a grid: scores, costs, and ranks among the models of the paper."""
    experiment = grid.experiment
    tables = []
    for filling in experiment.fillings:
        cells = [cell for cell in experiment.cells.values() if filling.concerns(cell)]
        if filling.measure == "score":
            tables.append(score_table(grid, filling, cells))
    if costs := cost_table(grid):
        tables.append(costs)
    for filling in experiment.fillings:
        if filling.measure == "score" and published_table(filling.table).rows[-1] == GRASS_ROW:
            tables += standings(grid, filling)
    return tables


def score_table(grid: GridRecord, filling: Filling, cells: Sequence[Cell]) -> ReportTable:
    """Published and measured scores, each with its change from the base row."""
    paper = [filling.published(cell) for cell in cells]
    found = [grid.measured(cell, filling.measure) for cell in cells]
    column = filling.place(cells[0])[1]
    better = published_table(filling.table).better[column]
    one_column = len({_metric(filling, cell) for cell in cells}) == 1 and len(cells) > 1
    metric = _metric(filling, cells[0])
    marks = [[""] * len(cells)] * 2
    if one_column:
        marks = [
            best_two([p.value for p in paper], better),
            best_two([None if m is None else m.mean for m in found], better),
        ]
    columns = ["", f"Paper, {metric} {ARROWS[better]}", f"Measured, {metric} {ARROWS[better]}"]
    if not one_column:
        columns = ["", "Paper", "Measured"]
    rows = []
    # The base row is the unchanged preset.
    base = next((i for i, c in enumerate(cells) if c.config() == GRASSConfig.preset(c.preset)), 0)
    for place, cell in enumerate(cells):
        row = [
            Entry(cell_label(grid, cell)),
            Entry(published_text(paper[place]), marks[0][place]),
            Entry(measured_text(found[place]), marks[1][place]),
        ]
        if one_column:
            values = [p.value for p in paper], [None if m is None else m.mean for m in found]
            row += [Entry(_change(v[place], v[base]) if place != base else "") for v in values]
        rows.append(row)
    if one_column:
        columns += ["Change in the paper", "Change measured"]
    note = f"Measured with {grid.budget.describe()}. Mean ± std over n seeds."
    return ReportTable(
        f"{grid.experiment.name}-scores", grid.experiment.title, columns, rows, note, {base}
    )


def cost_table(grid: GridRecord) -> ReportTable | None:
    """Variance, time and memory, published and measured."""
    fillings = [f for f in grid.experiment.fillings if f.measure in COSTS]
    if not fillings:
        return None
    columns = [""]
    for filling in fillings:
        columns += [f"{COSTS[filling.measure]}, paper", "measured"]
    rows = []
    for cell in grid.experiment.cells.values():
        row = [Entry(cell_label(grid, cell))]
        for filling in fillings:
            found = grid.measured(cell, filling.measure)
            row.append(Entry(published_text(filling.published(cell))))
            row.append(Entry(measured_text(found, filling.measure).partition(" (n")[0]))
        rows.append(row)
    note = (
        f"Measured with {grid.budget.describe()}, on the hardware below. The paper used an NVIDIA "
        "RTX A6000 Ada and reports GPU memory."
    )
    name = f"{grid.experiment.name}-costs"
    return ReportTable(name, f"{grid.experiment.title}: costs", columns, rows, note)


def standings(grid: GridRecord, filling: Filling) -> list[ReportTable]:
    """Measured rows among all models of the paper's table, best first."""
    table = published_table(filling.table)
    cells = list(grid.experiment.cells.values())
    found = []
    for column in dict.fromkeys(filling.place(cell)[1] for cell in cells):
        measured = {
            cell.row: grid.measured(cell, "score")
            for cell in cells
            if filling.place(cell)[1] == column
        }
        entries = [
            (cell.value, row, published_text(cell), False)
            for row in table.rows
            if (cell := table.cell(row, column)).value is not None
        ]
        entries += [
            (value.mean, row, measured_text(value), True)
            for row, value in measured.items()
            if value
        ]
        if not any(entry[3] for entry in entries):
            continue
        entries.sort(key=lambda entry: entry[0], reverse=table.better[column] == "higher")
        marks = best_two([entry[0] for entry in entries], table.better[column])
        rows = [
            [Entry(str(place)), Entry(f"{row}, measured here" if ours else row), Entry(text, mark)]
            for place, ((_, row, text, ours), mark) in enumerate(
                zip(entries, marks, strict=True), 1
            )
        ]
        found.append(
            ReportTable(
                f"{grid.experiment.name}-{column.lower()}-standings",
                f"{column}: ranking with the models of the paper",
                ["", "Model", f"{table.metrics[column]} {ARROWS[table.better[column]]}"],
                rows,
                f"Measured with {grid.budget.describe()}.",
                {i for i, entry in enumerate(entries) if entry[3]},
            )
        )
    return found


def claims_table(grids: Sequence[GridRecord]) -> ReportTable:
    """Claims in the paper's text, computed from its tables and from our runs, with a verdict."""
    evidence = Evidence(grids)
    rows = [_claim_row(claim, evidence) for claim in paper_claims()]
    rows = [row for row in rows if row[3].text]
    note = (
        "Computed from the numbers measured here, with the budgets above. 95 % intervals over "
        "training seeds, at least two per row; the variance between seeds is pooled over the rows "
        "of an experiment. Confirmed: the whole interval is on the side of zero that the paper "
        f"states, or, for RRWP instead of D-RRWP and back, below {SMALL:g} %. Not tested: the "
        "claim is about other models, whose numbers compare only with runs of the paper's budget."
    )
    columns = ["", "Stated", "From the paper's tables", "Measured", "95 % interval", "Verdict"]
    return ReportTable("claims", "What the paper's text says", columns, rows, note)


def _claim_row(claim: Claim, evidence: Evidence) -> list[Entry]:
    from_tables = claim.shown(claim.compute(published_value))
    here = claim.shown(claim.compute(evidence.value))
    interval = evidence.interval(claim)
    shown = EMPTY if interval is None else " to ".join(claim.shown(end) for end in interval)
    verdict = evidence.verdict(claim, interval)
    return [Entry(text) for text in (claim.text, claim.stated, from_tables, here, shown, verdict)]


def best_two(values: Sequence[float | None], better: str) -> list[str]:
    """Marks of the best and the second best number; equal numbers share a mark."""
    known = sorted({v for v in values if v is not None}, reverse=better == "higher")
    marks = dict(zip(known, (BEST, SECOND), strict=False))
    return ["" if value is None else marks.get(value, "") for value in values]


def _metric(filling: Filling, cell: Cell) -> str:
    table, column = published_table(filling.table), filling.place(cell)[1]
    return table.metrics.get(column, column)


def cell_label(grid: GridRecord, cell: Cell) -> str:
    """A label that distinguishes the cells of an experiment."""
    cells = grid.experiment.cells.values()
    if cell.architecture == "gin":
        return "GINE"  # GIN with edge features (PyG's GINEConv), even where the paper says GIN
    if not grid.experiment.fillings[0].table.startswith("added-edges"):
        return cell.row if len({c.row for c in cells}) > 1 else cell.column
    if cell.column == "Fully Connected":
        return "fully connected"
    kind = "" if cell.column == "0" else f", {cell.row}"
    return f"{cell.column} added edges per node{kind}"


def _change(value: float | None, base: float | None) -> str:
    if value is None or not base:
        return EMPTY
    percent = 100 * (value - base) / abs(base)
    return f"{'+' if percent >= 0 else '−'}{abs(percent):.1f} %"

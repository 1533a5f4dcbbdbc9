"""The experiments of ``ablations.toml``: cells, and the numbers of the paper they reproduce."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

from grass_gnn.config import GRASSConfig, preset_names, suggest
from grass_gnn.errors import GrassError
from grass_gnn.experiments.published import Published, published_table


@dataclass(frozen=True)
class Cell:
    """One configuration of an experiment; with a seed it is a run."""

    name: str
    preset: str
    row: str  # of the paper's table
    column: str
    settings: dict[str, Any] = field(default_factory=dict)  # changes to the preset
    architecture: str | None = None  # of a baseline, whose width is fitted to the size of GRASS

    def config(self) -> GRASSConfig:
        """The cell as the paper ran it; a baseline still has the width of the preset."""
        changes = dict(self.settings)
        if self.architecture is not None:
            changes["model.architecture"] = self.architecture
        return GRASSConfig.preset(self.preset, **changes)


@dataclass(frozen=True)
class Filling:
    """Numbers of a table measured by an experiment: the quantity and its place in the table."""

    table: str
    measure: str
    row: str = "{row}"
    column: str = "{column}"
    cells: list[str] | None = None  # names of the cells that have such a number; all if not given

    def concerns(self, cell: Cell) -> bool:
        """Whether the table has a number for a cell."""
        return self.cells is None or cell.name in self.cells

    def place(self, cell: Cell) -> tuple[str, str]:
        """Row and column of a cell's number."""
        names = {"row": cell.row, "column": cell.column}
        return self.row.format(**names), self.column.format(**names)

    def published(self, cell: Cell) -> Published:
        """The paper's number for a cell."""
        return published_table(self.table).cell(*self.place(cell))


@dataclass(frozen=True)
class Experiment:
    """A table of the paper, or a part of one, that can be run."""

    name: str
    title: str
    cells: dict[str, Cell]
    fillings: list[Filling]
    equal_time: bool = False  # cells train for the same time instead of the same number of epochs

    def cell(self, name: str) -> Cell:
        """A cell, by name."""
        if name not in self.cells:
            known = list(self.cells)
            raise GrassError(f"{self.name} has no row {name!r}{suggest(name, known)}")
        return self.cells[name]

    def only(self, names: list[str]) -> Experiment:
        """The same experiment with some of its cells."""
        return replace(self, cells={name: self.cell(name) for name in names})


@cache
def experiments() -> dict[str, Experiment]:
    """All experiments, by name: those of the file, and one for each preset."""
    text = (resources.files("grass_gnn") / "experiments" / "ablations.toml").read_text("utf-8")
    found = {name: _experiment(name, values) for name, values in tomllib.loads(text).items()}
    for whole in [e for e in found.values() if all(c.preset == n for n, c in e.cells.items())]:
        for name, cell in whole.cells.items():
            title = f"GRASS on {cell.column}"
            found.setdefault(name, Experiment(name, title, {name: cell}, whole.fillings))
    return found


def experiment(name: str) -> Experiment:
    """An experiment, by name."""
    if name not in experiments():
        raise GrassError(f"There is no experiment {name!r}{suggest(name, list(experiments()))}")
    return experiments()[name]


def _experiment(name: str, values: dict[str, Any]) -> Experiment:
    cells = {}
    for key, cell in values["cells"].items():
        architecture = cell.get("architecture")
        settings = {} if architecture is None else values["baseline"]
        cells[key] = Cell(
            key,
            cell.get("preset") or values["preset"],
            cell.get("row") or values["row"],
            cell.get("column") or values["column"],
            {**settings, **cell.get("settings", {})},
            architecture,
        )
        if cells[key].preset not in preset_names():
            raise GrassError(f"{name}.{key} starts from an unknown preset {cells[key].preset!r}.")
    fillings = [Filling(**filling) for filling in values["tables"]]
    return Experiment(name, values["title"], cells, fillings, values.get("equal") == "time")

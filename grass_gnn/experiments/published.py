"""The published numbers of the paper, from ``paper_results.toml``."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from grass_gnn.config import suggest
from grass_gnn.errors import GrassError

GRASS_ROW = "GRASS"
SPANNED = "same"
_TIME = re.compile(r"(?:(\d+)m)?\s*(?:(\d+)s)?")


@dataclass(frozen=True)
class Published:
    """One printed cell."""

    text: str  # as printed
    value: float | None = None  # none for words and dashes; times are in seconds
    spread: float | None = None  # standard deviation

    @classmethod
    def parse(cls, text: str) -> Published:
        """Read a cell.

        Example:
            >>> Published.parse("0.047 ± 0.001").spread, Published.parse("1m 32s").value
            (0.001, 92.0)
        """
        mean, _, spread = text.partition(" ± ")
        time = _TIME.fullmatch(text)
        if time and any(time.groups()):
            minutes, seconds = (float(part or 0) for part in time.groups())
            return cls(text, 60 * minutes + seconds)
        try:
            return cls(text, float(mean), float(spread) if spread else None)
        except ValueError:
            return cls(text)


@dataclass(frozen=True)
class PublishedTable:
    """One table of the paper."""

    name: str
    label: str  # its \\label in the paper's source
    title: str
    columns: list[str]
    cells: dict[tuple[str, str], Published]  # by row and column; spanned cells are in both rows
    rows: list[str]
    better: dict[str, str]  # "lower" or "higher", by column
    metrics: dict[str, str] = field(default_factory=dict)  # by column
    runs: dict[str, int] = field(default_factory=dict)  # number of runs behind a std, by column
    printed: int = 0  # number of printed cells: spanned ones count once

    def cell(self, row: str, column: str) -> Published:
        """A cell, by the names of its row and column."""
        for name, names in ((row, self.rows), (column, self.columns)):
            if name not in names:
                raise GrassError(f"The table {self.name!r} has no {name!r}{suggest(name, names)}")
        return self.cells[row, column]

    def rank(self, row: str, column: str, value: float | None = None) -> int:
        """Place of a row in a column (1 is best), with another value in its cell if given."""
        value = self.cell(row, column).value if value is None else value
        if value is None:
            raise GrassError(f"{row} has no number in the column {column!r} of {self.name!r}.")
        sign = 1 if self.better[column] == "lower" else -1
        others = (self.cells[other, column].value for other in self.rows if other != row)
        return 1 + sum(sign * other < sign * value for other in others if other is not None)


@cache
def published_tables() -> dict[str, PublishedTable]:
    """All tables, by name."""
    text = (resources.files("grass_gnn") / "experiments" / "paper_results.toml").read_text("utf-8")
    return {name: _table(name, values) for name, values in tomllib.loads(text).items()}


def published_table(name: str) -> PublishedTable:
    """A table, by name."""
    tables = published_tables()
    if name not in tables:
        raise GrassError(f"The paper has no table {name!r}{suggest(name, list(tables))}")
    return tables[name]


def _table(name: str, values: dict) -> PublishedTable:
    columns, printed = values["columns"], 0
    cells: dict[tuple[str, str], Published] = {}
    above: list[Published] = []
    for row, *texts in values["rows"]:
        if len(texts) != len(columns):
            raise GrassError(f"In {name!r}, the row {row!r} has {len(texts)} cells.")
        parsed = [
            above[place] if text == SPANNED else Published.parse(text)
            for place, text in enumerate(texts)
        ]
        printed += sum(text != SPANNED for text in texts)
        cells |= {(row, column): cell for column, cell in zip(columns, parsed, strict=True)}
        above = parsed

    def by_column(key: str) -> dict:
        """A list with one entry per column, or one entry for all of them."""
        entries = values.get(key, [])
        entries = entries * len(columns) if len(entries) == 1 else entries
        return dict(zip(columns, entries, strict=False))

    return PublishedTable(
        name,
        values["label"],
        values["title"],
        columns,
        cells,
        [row[0] for row in values["rows"]],
        by_column("better"),
        by_column("metrics"),
        by_column("runs"),
        printed,
    )

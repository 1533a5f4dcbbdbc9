"""What somebody pasted or dropped, as rows: a table, or lines with a SMILES each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from grass_gnn.data.tables import Row, open_table, shorten
from grass_gnn.errors import GrassError
from grass_gnn.serve.limits import Refused
from grass_gnn.workflow.schema import SMILES_NAMES, TableSchema

_COMPRESSED = (b"\x1f\x8b", b"PAR1", b"PK\x03\x04")  # gzip, Parquet, Excel


@dataclass(frozen=True)
class Sheet:
    """Rows, and which of their columns mean what."""

    columns: list[str]
    rows: list[Row]
    smiles: int
    descriptors: list[int]
    name: int | None  # a column to tell rows apart by

    @classmethod
    def read(cls, body: bytes, is_table: bool, schema: TableSchema, most: int) -> Sheet:
        """Read a sheet for a model.

        Args:
            body: The bytes of a file, or a text that was pasted.
            is_table: It has a header; if not said, a first line that names SMILES is one.
            schema: What the model needs.
            most: Rows that are taken.

        Raises:
            GrassError: It has no SMILES, lacks what the model needs, or has too many rows.
        """
        if body.startswith(_COMPRESSED):
            raise GrassError("The page takes tables as plain text: CSV or TSV.")
        text = body.decode("utf-8-sig", errors="replace").replace("\0", "\ufffd")
        lines = [line for line in re.split(r"\r\n?|\n", text) if line.strip()]
        if not lines:
            raise GrassError("There are no molecules to predict for.")
        header = re.split(r"[,;\t]", lines[0])
        if is_table or _smiles_column([name.strip(' "') for name in header], schema) is not None:
            columns, rows = _table_rows(text, most)
        else:
            columns, rows = _line_rows(lines[: most + 1], schema)
        if not rows:
            raise GrassError("There are no molecules to predict for.")
        if len(rows) > most:
            raise Refused(
                413,
                f"The page takes up to {most:,} rows at a time: use grass-gnn predict for more.",
            )
        smiles = _smiles_column(columns, schema)
        if smiles is None:
            known = ", ".join(shorten(name) for name in columns[:10])
            raise GrassError(f"The table has no column {schema.smiles!r}; there are {known}.")
        missing = [name for name in schema.descriptors if name not in columns]
        if missing:
            raise GrassError(
                "This model needs more than SMILES: give a table with "
                f"{', '.join(missing)} as well."
            )
        descriptors = [columns.index(name) for name in schema.descriptors]
        used = {smiles, *descriptors, *(columns.index(t) for t in schema.targets if t in columns)}
        name = next((place for place in range(len(columns)) if place not in used), None)
        return cls(columns, rows, smiles, descriptors, name)


def _smiles_column(columns: list[str], schema: TableSchema) -> int | None:
    if schema.smiles in columns:
        return columns.index(schema.smiles)
    return next((i for i, name in enumerate(columns) if name.lower() in SMILES_NAMES), None)


def _line_rows(lines: list[str], schema: TableSchema) -> tuple[list[str], list[Row]]:
    """A SMILES each, and what stands behind it as its name."""
    parts = [(*line.split(None, 1), "")[:2] for line in lines]
    rows = [Row(number, [s, name.strip()], "") for number, (s, name) in enumerate(parts, 1)]
    if any(row.cells[1] for row in rows):
        return [schema.smiles, "name"], rows
    return [schema.smiles], [Row(row.line, row.cells[:1], "") for row in rows]


def _table_rows(text: str, most: int) -> tuple[list[str], list[Row]]:
    """Read by the same rules as a file on the command line."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_text(text, encoding="utf-8", newline="")
        try:
            table = open_table(path)
            return table.columns, list(islice(table, most + 1))
        except GrassError as error:  # the file was only ours
            raise GrassError(str(error).replace(f"The file {path}", "The table")) from None

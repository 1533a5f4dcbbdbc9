"""Tables as strangers write them: CSV, TSV and Parquet, row by row, with every row accounted for.

What a row holds may be anything: too many cells, an open quotation mark, a cell of a million
characters. It still is one row, in its place, and a later one is not affected.
"""

from __future__ import annotations

import logging
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grass_gnn.config import suggest
from grass_gnn.data.csv_records import records, split_cells
from grass_gnn.data.text_files import open_text, text_lines
from grass_gnn.errors import GrassError, first_line

TABLE_ENDINGS = (".csv", ".tsv", ".txt", ".parquet", ".csv.gz", ".tsv.gz", ".txt.gz")
# Cells that say nothing, in lower case.
MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-"}

try:
    from pyarrow import ArrowException
except ImportError:  # a sentence when Parquet is asked for

    class ArrowException(Exception):  # type: ignore[no-redef]
        """What cannot happen without pyarrow."""


# What reading a damaged file may lead to; Arrow's own errors are partly ValueErrors.
_DAMAGES = (OSError, EOFError, zlib.error, ArrowException)

logger = logging.getLogger(__name__)


class Row(NamedTuple):
    """One row of a table."""

    line: int  # of the file, from 1; in Parquet, of the row, from 1
    cells: list[str]  # as many as there are columns
    problem: str  # why the row cannot be trusted; mostly empty


@dataclass(frozen=True)
class Table:
    """A table that is read anew, row by row, each time it is iterated over."""

    path: Path
    columns: list[str]
    delimiter: str | None  # None: Parquet

    def __iter__(self) -> Iterator[Row]:
        try:
            yield from _parquet_rows(self.path) if self.delimiter is None else self._text_rows()
        except _DAMAGES as error:  # such as a download that broke off
            raise GrassError(f"The file {self.path} is damaged: {first_line(error)}.") from None

    def place(self, name: str, option: str) -> int:
        """Number of the column of a name; of several, the first.

        Raises:
            GrassError: There is none; the message names the option that asked for it.
        """
        if name not in self.columns:
            known = [column for column in self.columns if column]
            raise GrassError(
                f"{self.path} has no column {name!r} ({option}){suggest(name, known)}"
                if known
                else f"{self.path} has no header."
            )
        if self.columns.count(name) > 1:
            logger.warning(
                "%s has the column %r more than once: the first counts.", self.path, name
            )
        return self.columns.index(name)

    def _text_rows(self) -> Iterator[Row]:
        assert self.delimiter is not None
        width = len(self.columns)
        with open_text(self.path) as file:
            found = records(enumerate(text_lines(file), 1), self.delimiter, width)
            next(found, None)  # the header
            empty: list[Row] = []  # blank lines count as rows unless they end the file
            for line, cells in found:
                if not cells:
                    empty.append(Row(line, [""] * width, "the row is empty"))
                    continue
                yield from empty
                empty.clear()
                problem = ""
                if len(cells) > width:
                    problem = f"the row has {len(cells)} cells, but the header has {width}"
                yield Row(line, (cells + [""] * width)[:width], problem)


def is_table(path: str | Path) -> bool:
    """Whether a name is that of a table."""
    return str(path).lower().endswith(TABLE_ENDINGS)


def open_table(path: str | Path) -> Table:
    """Read the header of a table.

    Raises:
        GrassError: There is no such file, or it is no table.
    """
    path = Path(path)
    if not path.is_file():
        raise GrassError(f"There is no file {path}.")
    name = path.name.lower()
    if name.endswith(".parquet"):
        return Table(path, _parquet_file(path).schema_arrow.names, None)
    try:
        with open_text(path) as file:
            header = next(text_lines(file), "")
    except _DAMAGES as error:
        raise GrassError(f"The file {path} cannot be read: {first_line(error)}.") from None
    delimiter = "\t" if ".tsv" in name else max(",;\t", key=header.count)
    cells = split_cells(header, delimiter) or []
    if not any(cell.strip() for cell in cells):
        raise GrassError(f"The file {path} has no header in its first line.")
    return Table(path, [cell.strip() for cell in cells], delimiter)


def _parquet_file(path: Path) -> Any:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise GrassError(
            "Reading Parquet needs pyarrow: pip install 'grass-gnn[parquet]'."
        ) from None
    try:
        return ParquetFile(path)
    except (ArrowException, OSError) as error:
        raise GrassError(f"The file {path} is no Parquet file: {first_line(error)}.") from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    number = 0
    for batch in _parquet_file(path).iter_batches(batch_size=4096):
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            number += 1
            yield Row(number, ["" if value is None else str(value) for value in values], "")


def parse_number(text: str) -> float:
    """A number from a cell; NaN where the cell says that there is none.

    Raises:
        ValueError: It is neither; the message ends a sentence.
    """
    text = text.strip()
    if text.lower() in MISSING:
        return math.nan
    try:
        value = float(text) if "_" not in text else None
    except ValueError:
        value = None
    if value is None:
        hint = ": write numbers with a point and no commas" if "," in text else ""
        raise ValueError(f"{shorten(text)} is not a number{hint}")
    if math.isinf(value):
        raise ValueError("a number is infinite")
    return value


def shorten(text: str, length: int = 40) -> str:
    """A cell as it may be shown: in quotes, on one line, and not too long."""
    return repr(text if len(text) <= length else text[: length - 1] + "…")

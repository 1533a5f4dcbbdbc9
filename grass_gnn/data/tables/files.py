"""Tables of molecules, read row by row: CSV, TSV and Parquet here, others in ``formats.py``.

Tables are untrusted: an unreadable row gets an error message and does not affect others, memory is
bounded whatever a file contains, and no cell we write can be evaluated as a formula.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import logging
import math
import re
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from grass_gnn.config import suggest
from grass_gnn.errors import GrassError, first_line

_HARMLESS = re.compile(  # signs alone, and numbers such as -1,5 or -5 % or -0.2 ± 0.1 (3 runs)
    r"[+-]{1,2}|[+-]?\d[\d.,]*(?:[eE][+-]?\d+)?\s?%?|[+-][\d.]+ ± [\d.]+.{0,20}"
)


def guard(cell: str) -> str:
    """Put an apostrophe before a cell that a spreadsheet would evaluate as a formula.

    A bare carriage return becomes a line break: Python's writer does not quote it, and the text
    after it would start a new row.
    """
    cell = cell.replace("\r\n", "\n").replace("\r", "\n")
    if cell[:1] in "=+-@\t\n" and cell[:1] and not _HARMLESS.fullmatch(cell):
        try:
            float(cell)
        except ValueError:
            return "'" + cell
    return cell


_LONGEST_LINE = 1 << 25  # characters
# Maximum decompressed size in bytes, or as a multiple of the compressed size.
_LARGEST_UNPACKED, _LARGEST_RATIO = 1 << 30, 100
_LONGEST_CELL = 1 << 20  # characters of a Parquet cell
_LARGEST_PARQUET = 1 << 26  # decompressed bytes: a column of a row group is in memory at once


def open_text(path: Path) -> io.TextIOWrapper:
    """Open a text file, compressed or not; see :func:`decode_text` for its encoding."""
    csv.field_size_limit(sys.maxsize)
    with path.open("rb") as probe:
        start = probe.read(2)
    raw: Any = _Unpacked(path, "rb") if start == b"\x1f\x8b" else path.open("rb")
    encoding, errors = _encoding(start)
    return io.TextIOWrapper(raw, encoding=encoding, errors=errors, newline=None)


def decode_text(data: bytes) -> str:
    """The text of a table: UTF-8, or UTF-16 if it says so, as texts of Excel do.

    Bytes that are not valid UTF-8 are read as Windows-1252, the usual encoding of other files.
    """
    return data.decode(*_encoding(data[:2]))


def _encoding(start: bytes) -> tuple[str, str]:
    """Encoding of a text that starts with these bytes, and what is done with invalid ones."""
    if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16", "replace"
    return "utf-8-sig", _WINDOWS


_WINDOWS = "windows-1252-where-invalid"  # name of the error handler below


def _as_windows(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("cp1252", "replace"), error.end


codecs.register_error(_WINDOWS, _as_windows)


def text_lines(file: io.TextIOWrapper) -> Iterator[str]:
    """The lines of a file.

    Raises:
        OSError: A line is too long.
    """
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise OSError(f"a line has more than {_LONGEST_LINE:,} characters")
        yield line


class _Unpacked(gzip.GzipFile):
    """A gzip file that raises an error when its decompressed size exceeds the limit."""

    def read1(self, size: int = -1) -> bytes:
        """Read some bytes."""
        data = super().read1(size)
        if self.tell() > _LARGEST_UNPACKED:
            limit = max(_LARGEST_UNPACKED, _LARGEST_RATIO * Path(str(self.name)).stat().st_size)
            if self.tell() > limit:
                raise OSError(f"it unpacks to more than {limit:,} bytes")
        return data


_LONGEST_RECORD = 200  # lines of a record with quoted line breaks
_LONGEST_HEADER = 10  # the same, of a header
_SAMPLED_LINES, _SAMPLED_SIZE = 50, 1 << 16  # from which the delimiter is detected


def records(
    lines: Iterator[tuple[int, str]], delimiter: str, width: int
) -> Iterator[tuple[int, list[str]]]:
    """Cells of each record with the number of its first line.

    A quoted cell may contain line breaks, so an unclosed quotation mark would swallow all rows up
    to the next one. Therefore a record of several lines must have as many cells as the header, and
    no line within it may look like a row by itself.
    """
    ahead: deque[tuple[int, str]] = deque()  # lines already read that belong to later records
    while True:
        first = ahead.popleft() if ahead else next(lines, None)
        if first is None:
            return
        number, line = first
        cells = split_cells(line, delimiter)
        if cells is not None:
            yield number, cells
            continue
        joined, places = line, 0
        for places in range(1, _LONGEST_RECORD):
            if len(ahead) < places:
                following = next(lines, None)
                if following is None:
                    break
                ahead.append(following)
            joined += ahead[places - 1][1]
            cells = split_cells(joined, delimiter)
            if cells is not None:
                break
        within = [ahead[place][1] for place in range(places - 1)]
        rows = [len(split_cells(text, delimiter) or []) == width for text in within]
        if cells is not None and len(cells) == width and not (width > 1 and any(rows)):
            for _ in range(places):
                ahead.popleft()
            yield number, cells
        else:  # the quotation mark only affects its own line
            yield number, split_cells(line.rstrip("\r\n") + '"', delimiter) or [line]


def split_cells(text: str, delimiter: str) -> list[str] | None:
    """Cells of a record; None if it ends within a quoted cell."""
    text = text.rstrip("\r\n").replace("\0", "\ufffd")
    if '"' not in text:
        return text.split(delimiter) if text else []
    try:
        list(csv.reader([text], delimiter=delimiter, strict=True))
    except csv.Error as error:
        if "unexpected end" in str(error):
            return None
    return next(csv.reader([text], delimiter=delimiter), [])


_TEXT_TYPES = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
TEXT_ENDINGS = (".csv", ".tsv", ".txt")
OTHER_ENDINGS = (".xlsx", ".xlsm", ".sdf", ".sd", ".mol", ".smi", ".smiles", ".ism")
TABLE_ENDINGS = (
    *TEXT_ENDINGS,
    *OTHER_ENDINGS,
    ".parquet",
    *(f"{ending}.gz" for ending in (*TEXT_ENDINGS, *OTHER_ENDINGS[2:])),
)
# Cells that mean "no value", in lower case.
MISSING = {
    *("", "na", "n/a", "#n/a", "<na>", "n.a.", "n.d.", "nd", "nan", "null", "none"),
    *("?", "-", "--", "–", "—"),
}

try:
    from pyarrow import ArrowException
except ImportError:  # an error is raised when a Parquet file is opened

    class ArrowException(Exception):  # type: ignore[no-redef]
        """Never raised without pyarrow."""


# Errors of damaged files; some of Arrow's are ValueErrors.
_DAMAGES = (OSError, EOFError, zlib.error, ArrowException, UnicodeDecodeError)

logger = logging.getLogger(__name__)


class Row(NamedTuple):
    """One row of a table."""

    line: int  # line of the file, counted from 1; in Parquet files, the row
    cells: list[str]  # as many as there are columns
    problem: str  # why the row cannot be used; usually empty


def fit_row(line: int, cells: list[str], width: int) -> Row:
    """A row with as many cells as the header; surplus ones are a problem unless they are empty."""
    problem = ""
    if any(cell.strip() for cell in cells[width:]):
        problem = f"the row has {len(cells)} cells, but the header has {width}"
    return Row(line, (cells + [""] * width)[:width], problem)


@dataclass(frozen=True)
class Table:
    """A table that is read row by row, from the start each time it is iterated over."""

    path: Path
    columns: list[str]
    delimiter: str | None  # of text files; None: another format
    read: Callable[[], Iterator[Row]] | None = None  # reads the rows of another format
    header_lines: int = 1  # of text files

    def __iter__(self) -> Iterator[Row]:
        try:
            yield from self._text_rows() if self.read is None else self.read()
        except _DAMAGES as error:  # such as an incomplete download
            raise GrassError(f"The file {self.path} is damaged: {first_line(error)}.") from None

    def place(self, name: str, option: str) -> int:
        """Index of a column; the first one if several have the name.

        Raises:
            GrassError: There is no such column; the message names the option.
        """
        if name not in self.columns:
            known = [column for column in self.columns if column]
            raise GrassError(
                f"{self.path} has no column {name!r} ({option}){suggest(name, known)}"
                if known
                else f"{self.path} has no header."
            )
        if self.columns.count(name) > 1:
            logger.warning("%s has several columns named %r: the first is used.", self.path, name)
        return self.columns.index(name)

    def _text_rows(self) -> Iterator[Row]:
        assert self.delimiter is not None
        width = len(self.columns)
        with open_text(self.path) as file:
            lines = islice(enumerate(text_lines(file), 1), self.header_lines, None)
            found = records(lines, self.delimiter, width)
            empty: list[Row] = []  # blank lines are rows, except at the end
            for line, cells in found:
                if not cells:
                    empty.append(Row(line, [""] * width, "the row is empty"))
                    continue
                yield from empty
                empty.clear()
                yield fit_row(line, cells, width)


def is_table(path: str | Path) -> bool:
    """Whether a file name is that of a table."""
    return str(path).lower().endswith(TABLE_ENDINGS)


def table_name(path: str | Path) -> str:
    """The name of a table's file without its ending, from which names of output files are made."""
    name = Path(path).name
    endings = [one for one in TABLE_ENDINGS if name.lower().endswith(one)]
    return name[: -len(endings[0])] if endings and len(name) > len(endings[0]) else name


def open_table(path: str | Path) -> Table:
    """Open a table and read its header.

    Raises:
        GrassError: There is no such file, or it is not a table.
    """
    path = Path(path)
    if not path.is_file():
        raise GrassError(f"There is no file {path}.")
    name = path.name.lower()
    if name.endswith(".parquet"):
        names, others = _parquet_columns(_parquet_file(path))
        if others:
            shown = ", ".join(map(shorten, others[:5]))
            logger.warning("%s has columns that are neither text nor numbers: %s.", path, shown)
        return Table(path, names, None, partial(_parquet_rows, path))
    ending = Path(name.removesuffix(".gz")).suffix
    if ending in OTHER_ENDINGS:
        from grass_gnn.data.tables.formats import FORMATS

        try:
            return FORMATS[ending](path)
        except _DAMAGES as error:
            raise GrassError(f"The file {path} cannot be read: {first_line(error)}.") from None
    try:
        with open_text(path) as file:
            sample = _first_lines(file)
    except _DAMAGES as error:
        raise GrassError(f"The file {path} cannot be read: {first_line(error)}.") from None
    if sample and "\0" in sample[0]:
        raise GrassError(
            f"The file {path} is not text: tables are read from CSV, TSV, Excel (.xlsx), SDF, SMI "
            "and Parquet files."
        )
    delimiter = "\t" if ".tsv" in name else _find_delimiter(sample)
    cells, count = _header(sample, delimiter)
    if not any(cell.strip() for cell in cells):
        raise GrassError(f"The file {path} has no header in its first line.")
    return Table(path, [column_name(cell) for cell in cells], delimiter, header_lines=count)


def column_name(cell: str) -> str:
    """The name in a cell of a header, on one line, so that an option can give it."""
    return " ".join(cell.split()) if "\n" in cell else cell.strip()


def _first_lines(file: io.TextIOWrapper) -> list[str]:
    lines, size = list[str](), 0
    for line in islice(text_lines(file), _SAMPLED_LINES):
        lines.append(line)
        size += len(line)
        if size > _SAMPLED_SIZE:
            break
    return lines


def _header(lines: list[str], delimiter: str) -> tuple[list[str], int]:
    """Cells of the header, of which a quoted one may hold line breaks, and its number of lines."""
    text = ""
    for count, line in enumerate(lines[:_LONGEST_HEADER], 1):
        text += line
        cells = split_cells(text, delimiter)
        if cells is not None:
            within = [split_cells(inner, delimiter) or [] for inner in lines[1 : count - 1]]
            if any(len(inner) == len(cells) > 1 for inner in within):
                break  # rows: the quotation mark in the first line is never closed
            return cells, count
    return [], 1


def _find_delimiter(lines: list[str]) -> str:
    """The delimiter with which most rows have as many cells as the header.

    Names and decimal numbers may contain commas, so counting them in the header is not enough.
    """

    def fit(delimiter: str) -> tuple[int, int]:
        cells, count = _header(lines, delimiter)
        rows = [split_cells(line, delimiter) or [] for line in lines[count:]]
        return sum(len(row) == len(cells) > 1 for row in rows), "".join(lines[:1]).count(delimiter)

    # In a tie, commas belong to numbers or names.
    best = max(";\t,", key=fit)
    return best if any(best in line for line in lines[:1]) else ","


def _parquet_file(path: Path) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise GrassError(
            "Reading Parquet needs pyarrow: pip install 'grass-gnn[parquet]'."
        ) from None
    try:
        # Keep dictionary encoding: expanded to every row, texts could exhaust the memory.
        names = pq.read_schema(path)
        texts = [one.name for one in names if str(one.type) in _TEXT_TYPES]
        return pq.ParquetFile(path, read_dictionary=texts)
    except _DAMAGES as error:
        raise GrassError(f"The file {path} is not a Parquet file: {first_line(error)}.") from None


def _parquet_columns(file: Any) -> tuple[list[str], list[str]]:
    """Names of the columns of texts and numbers, and those of others, which are not read.

    Lists, structures and texts of fixed length are expanded to every row when they are read: a file
    of a few hundred bytes could exhaust the memory.
    """
    from pyarrow import types

    names, others = list[str](), list[str]()
    for one in file.schema_arrow:
        kind = one.type.value_type if types.is_dictionary(one.type) else one.type
        simple = types.is_primitive(kind) or types.is_decimal(kind) or types.is_null(kind)
        (names if simple or str(kind) in _TEXT_TYPES else others).append(one.name)
    return names, others


def _parquet_rows(path: Path) -> Iterator[Row]:
    file = _parquet_file(path)
    compressed = path.stat().st_size
    limit = max(_LARGEST_PARQUET, _LARGEST_RATIO * compressed)
    groups = range(file.metadata.num_row_groups)
    if sum(file.metadata.row_group(group).total_byte_size for group in groups) > limit:
        raise OSError(f"it unpacks to more than {limit:,} bytes")
    names, others = _parquet_columns(file)
    limit = max(_LARGEST_UNPACKED, _LARGEST_RATIO * compressed)
    number = size = 0
    for batch in file.iter_batches(batch_size=4096, columns=names if others else None):
        if batch.schema.names != names:  # "a.b" is also the name of b in a structure a
            raise OSError("the names of its columns are ambiguous")
        batch.validate(full=True)  # else a place outside the dictionary could be a wrong word
        for cells in zip(*map(_parquet_cells, batch.columns), strict=True):
            number += 1
            size += sum(map(len, cells)) + len(cells)
            if size > limit:
                raise OSError(f"it contains more than {limit:,} characters")
            longest = max(map(len, cells), default=0)
            problem = ""
            if longest > _LONGEST_CELL:
                problem = f"a cell has {longest:,} characters, more than {_LONGEST_CELL:,}"
                cells = tuple(cell if len(cell) <= _LONGEST_CELL else "" for cell in cells)
            yield Row(number, list(cells), problem)


def _parquet_cells(column: Any) -> list[str]:
    """The cells of a column as text; equal cells of a dictionary share their memory."""
    if not hasattr(column, "dictionary"):
        return list(map(_parquet_text, column.to_pylist()))
    words = list(map(_parquet_text, column.dictionary.to_pylist()))
    return ["" if place is None else words[place] for place in column.indices.to_pylist()]


def _parquet_text(value: Any) -> str:
    if isinstance(value, bytes):  # texts that were written as binary
        return decode_text(value)
    return "" if value is None else str(value)


def parse_number(text: str) -> float:
    """The number in a cell; NaN if the cell means "no value".

    Raises:
        ValueError: The cell is neither; the message is a clause without a full stop.
    """
    text = text.strip().replace("\u2212", "-")  # the minus sign of typeset texts
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
    """A cell for an error message: quoted, on one line, and shortened."""
    return repr(text if len(text) <= length else text[: length - 1] + "…")

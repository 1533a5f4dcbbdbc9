"""Excel, SDF and SMI files as tables.

The same limits as for CSV files apply. The structures of an SDF file become SMILES in the processes
that read molecules, so that a structure that crashes RDKit costs one row.
"""

from __future__ import annotations

import logging
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from grass_gnn.data.tables.files import Row, Table, column_name, fit_row, open_text, text_lines
from grass_gnn.data.tables.parsing import MolBlockReader
from grass_gnn.data.tables.reading import ReadingPool
from grass_gnn.errors import GrassError, first_line

SMILES, NAME = "smiles", "name"  # columns of formats without a header

# Bytes of XML, of which openpyxl needs several times as much memory: at most the first number, and
# at most the second or 100 times the size of the file.
_LARGEST_SHEET, _SMALL_SHEET, _LARGEST_RATIO = 1 << 28, 1 << 24, 100
_MOST_ROWS = 1_048_576  # as in Excel
_FEW_CELLS = 1 << 22  # with empty ones; a sheet with more has at least one byte of XML for each
_LONGEST_ENTRY = 1 << 22  # characters of a structure with its properties
_MOST_PROPERTIES = 2000
_CHUNK = 512  # structures that are converted together
_PROPERTY = re.compile(r">.*?<([^>]*)>")  # the line before a value in an SDF file
_HEADER = re.compile(r"smiles|smi|canonical_smiles|structure", re.IGNORECASE)

logger = logging.getLogger(__name__)


# Excel -------------------------------------------------------------------------------------------


def open_excel(path: Path) -> Table:
    """The first sheet of an Excel workbook; its first row is the header."""
    rows = _sheet_rows(path, tell=True)
    header = next(rows, None)
    if header is None or not any(cell.strip() for cell in header.cells):
        raise GrassError(f"The first sheet of {path} has no header in its first row.")
    names = [column_name(cell) for cell in header.cells]
    while names and not names[-1]:  # columns that were formatted but never filled
        names.pop()
    return Table(path, names, None, partial(_excel_rows, path, len(names)))


def _excel_rows(path: Path, width: int) -> Iterator[Row]:
    empty: list[Row] = []  # empty rows are rows, except at the end
    for row in islice(_sheet_rows(path), 1, None):
        cells = [*row.cells[:width], *[""] * (width - len(row.cells))]
        if not any(row.cells):
            if len(empty) < _CHUNK:  # a sheet may claim a million of them
                empty.append(Row(row.line, cells, "the row is empty"))
            continue
        yield from empty
        empty.clear()
        extra = any(row.cells[width:])
        yield Row(row.line, cells, "the row has cells without a header" if extra else row.problem)


def _sheet_rows(path: Path, tell: bool = False) -> Iterator[Row]:
    """The rows of the first sheet; ``tell`` of others, which are not read."""
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise GrassError("Reading Excel needs openpyxl: pip install 'grass-gnn[excel]'.") from None
    most = max(_FEW_CELLS, _check_workbook(path))
    try:
        book = load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            sheet, *others = book.worksheets
            if tell and others:
                logger.warning(
                    "%s has %d sheets: the first, %r, is read.", path, 1 + len(others), sheet.title
                )
            sheet.reset_dimensions()  # what the file says about its size may be wrong
            cells = 0
            for line, values in enumerate(sheet.iter_rows(values_only=True), 1):
                cells += len(values)
                if line > _MOST_ROWS or cells > most:
                    raise GrassError(
                        f"The first sheet of {path} has too many rows or columns: save it as CSV."
                    )
                yield Row(line, [_cell(value) for value in values], "")
        finally:
            book.close()
    except (GrassError, MemoryError):
        raise
    except Exception as error:  # openpyxl raises what XML, zip and number parsers raise
        raise GrassError(
            f"The file {path} is not a readable Excel file: {first_line(error)}."
        ) from None


def _check_workbook(path: Path) -> int:
    """Bytes of an unpacked workbook; raise for too many, and for XML that defines entities."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            largest = max(_SMALL_SHEET, _LARGEST_RATIO * path.stat().st_size)
            largest = min(largest, _LARGEST_SHEET)
            size = sum(entry.file_size for entry in entries)
            if size > largest or len(entries) > 10_000:
                raise GrassError(
                    f"The file {path} unpacks to more than {largest:,} bytes: "
                    "save the sheet as CSV."
                )
            for entry in entries:
                if entry.filename.endswith((".xml", ".rels")):
                    with archive.open(entry) as part:
                        _check_xml(part, path)
            return size
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as error:
        raise GrassError(f"The file {path} is not an Excel file: {first_line(error)}.") from None


def _check_xml(part: IO[bytes], path: Path) -> None:
    """Raise for entities; they may follow a comment of any length, and UTF-16 would hide them."""
    before = b""
    while text := part.read(1 << 16):
        if not before and not text.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<"):
            raise GrassError(f"The file {path} is not an Excel file: its XML is not UTF-8.")
        both = before[-16:] + text
        if b"<!DOCTYPE" in both or b"<!ENTITY" in both:
            raise GrassError(f"The file {path} defines XML entities: refused.")
        before = text


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))  # Excel stores whole numbers as floats
    return str(value)


# SMI ---------------------------------------------------------------------------------------------


def open_smi(path: Path) -> Table:
    """Lines with a SMILES and a name; a header line gives the names of further columns."""
    with open_text(path) as file:
        first = next(text_lines(file), "")
    cells = [cell.strip() for cell in first.split("\t" if "\t" in first else None)]
    if not cells or _HEADER.fullmatch(cells[0]) is None:
        return Table(path, [SMILES, NAME], None, partial(_smi_rows, path, [SMILES, NAME], False))
    if "\t" in first:  # names may contain spaces
        return Table(path, cells, None, partial(_tabbed_rows, path, len(cells)))
    names = cells if len(cells) > 1 else [SMILES, NAME]
    return Table(path, names, None, partial(_smi_rows, path, names, True))


def _tabbed_rows(path: Path, width: int) -> Iterator[Row]:
    with open_text(path) as file:
        for line, text in islice(enumerate(text_lines(file), 1), 1, None):
            cells = [cell.strip() for cell in text.split("\t")]
            if any(cells):
                yield fit_row(line, cells, width)


def _smi_rows(path: Path, names: list[str], header: bool) -> Iterator[Row]:
    with open_text(path) as file:
        for line, text in enumerate(text_lines(file), 1):
            if (line == 1 and header) or not text.strip():
                continue
            smiles, rest = (*text.strip().split(None, 1), "")[:2]
            if rest.startswith("|") and "|" in rest[1:]:  # CXSMILES
                extension, rest = rest[1:].split("|", 1)
                smiles = f"{smiles} |{extension}|"
            cells = [smiles, *rest.strip().split(None, max(len(names) - 2, 0))]
            yield Row(line, (cells + [""] * len(names))[: len(names)], "")


# SDF ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """One structure of an SDF file."""

    line: int
    block: str
    properties: dict[str, str]
    problem: str = ""


def open_sdf(path: Path) -> Table:
    """One row per structure: its SMILES, its name, and its properties as columns."""
    found: dict[str, None] = {}
    for entry in _entries(path):
        found |= dict.fromkeys(entry.properties)
        if len(found) > _MOST_PROPERTIES:
            raise GrassError(f"{path} has more than {_MOST_PROPERTIES:,} different properties.")
    own = [name for name in found if name.lower() not in (SMILES, NAME)]
    return Table(path, [SMILES, NAME, *own], None, partial(_sdf_rows, path, own))


def _sdf_rows(path: Path, names: list[str]) -> Iterator[Row]:
    entries = _entries(path)
    with ReadingPool(MolBlockReader()) as pool:
        while chunk := list(islice(entries, _CHUNK)):
            found = pool.read(["" if entry.problem else entry.block for entry in chunk])
            for entry, answer in zip(chunk, found, strict=True):
                smiles, problem = ("", answer) if isinstance(answer, str) else (*answer, "")
                title = entry.block.partition("\n")[0].strip()
                cells = [smiles, title, *(entry.properties.get(name, "") for name in names)]
                yield Row(entry.line, cells, entry.problem or problem)


def _entries(path: Path) -> Iterator[_Entry]:
    with open_text(path) as file:
        start, size, lines = 1, 0, list[str]()
        for number, text in enumerate(chain(text_lines(file), ["$$$$"]), 1):
            text = text.rstrip("\r\n").replace("\0", "\ufffd")
            if not text.startswith("$$$$"):
                size += len(text) + 1
                if size <= _LONGEST_ENTRY:
                    lines.append(text)
                continue
            if any(line.strip() for line in lines):
                yield _entry(start, lines, size)
            start, size, lines = number + 1, 0, []


def _entry(start: int, lines: list[str], size: int) -> _Entry:
    if size > _LONGEST_ENTRY:
        return _Entry(start, "", {}, f"the entry has more than {_LONGEST_ENTRY:,} characters")
    end = next((n for n, line in enumerate(lines) if line.startswith("M  END")), None)
    if end is None:
        return _Entry(start, "", {}, "the structure has no end (M  END)")
    block = "\n".join(lines[: end + 1]) + "\n"
    properties: dict[str, str] = {}
    place = end + 1
    while place < len(lines):
        if name := _PROPERTY.match(lines[place]):
            after = next(
                (n for n in range(place + 1, len(lines)) if not lines[n].strip()), len(lines)
            )
            properties[name[1].strip()] = "\n".join(lines[place + 1 : after]).strip()
            place = after
        place += 1
    longest, problem = MolBlockReader.longest, ""
    if len(block) > longest:
        problem = f"the structure has more than {longest:,} characters"
    return _Entry(start, block, properties, problem)


FORMATS: dict[str, Callable[[Path], Table]] = {
    ".xlsx": open_excel,
    ".xlsm": open_excel,
    ".sdf": open_sdf,
    ".sd": open_sdf,
    ".mol": open_sdf,
    ".smi": open_smi,
    ".smiles": open_smi,
    ".ism": open_smi,
}
"""How files are opened, by the ending of their name; texts may be compressed (``.sdf.gz``)."""

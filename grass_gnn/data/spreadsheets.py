"""Cells that a spreadsheet shows and does not run."""

from __future__ import annotations

import re

_NUMBER_AND_SPREAD = re.compile(r"[+-][\d.]+ ± [\d.]+.{0,20}")  # as our own tables have it


def guard(cell: str) -> str:
    """A cell that a spreadsheet would take for a formula, as the text that it is.

    A bare carriage return becomes a line break: Python's writer leaves it without quotation marks,
    and what follows it would be the first cell of another row.
    """
    cell = cell.replace("\r\n", "\n").replace("\r", "\n")
    if cell[:1] in "=+-@\t\n" and cell[:1] and not _NUMBER_AND_SPREAD.fullmatch(cell):
        try:
            float(cell)
        except ValueError:
            return "'" + cell
    return cell

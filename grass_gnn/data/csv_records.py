"""Records of CSV files: cells in quotation marks, over several lines, and marks left open."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator

_LONGEST_RECORD = 200  # lines that a quoted cell may go over


def records(
    lines: Iterator[tuple[int, str]], delimiter: str, width: int
) -> Iterator[tuple[int, list[str]]]:
    """Cells of each record with the number of its first line.

    A quoted cell may hold line breaks. A quotation mark that somebody forgot to close would by the
    same rule swallow all rows to the next mark; so a record of several lines must have as many
    cells as the header, and no line within it may look like a row itself.
    """
    ahead: deque[tuple[int, str]] = deque()  # lines that were read but belong to later records
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
        else:  # the mark spoils its own line and no other
            yield number, split_cells(line.rstrip("\r\n") + '"', delimiter) or [line]


def split_cells(text: str, delimiter: str) -> list[str] | None:
    """Cells of one record; None if it ends within a quoted cell."""
    text = text.rstrip("\r\n").replace("\0", "\ufffd")
    if '"' not in text:
        return text.split(delimiter) if text else []
    try:
        list(csv.reader([text], delimiter=delimiter, strict=True))
    except csv.Error as error:
        if "unexpected end" in str(error):
            return None
    return next(csv.reader([text], delimiter=delimiter), [])

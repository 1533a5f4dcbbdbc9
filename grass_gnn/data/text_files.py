"""Text files as strangers write them: compressed or not, in any encoding, of lines with an end."""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LONGEST_LINE = 1 << 25  # characters
# A compressed file that unpacks to more than this, and to so many times its size, is a trap.
_LARGEST_UNPACKED, _LARGEST_RATIO = 1 << 30, 100


def open_text(path: Path) -> io.TextIOWrapper:
    """A text file, compressed or not, without its byte-order mark; bytes that are no text show."""
    csv.field_size_limit(sys.maxsize)
    with path.open("rb") as probe:
        compressed = probe.read(2) == b"\x1f\x8b"
    raw: Any = _Unpacked(path, "rb") if compressed else path.open("rb")
    return io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline=None)


def text_lines(file: io.TextIOWrapper) -> Iterator[str]:
    """The lines of a file.

    Raises:
        OSError: One of them does not end.
    """
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise OSError(f"a line has more than {_LONGEST_LINE:,} characters")
        yield line


class _Unpacked(gzip.GzipFile):
    """A compressed file that stops before it fills the memory."""

    def read1(self, size: int = -1) -> bytes:
        """Read some bytes."""
        data = super().read1(size)
        if self.tell() > _LARGEST_UNPACKED:
            limit = max(_LARGEST_UNPACKED, _LARGEST_RATIO * Path(str(self.name)).stat().st_size)
            if self.tell() > limit:
                raise OSError(f"it unpacks to more than {limit:,} bytes")
        return data

"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grass_gnn.errors import GrassError


@contextlib.contextmanager
def write_whole(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside ``path`` to write to, then move it there in one piece.

    The bytes are on disk before the name is: a reader, or a machine that lost its power, finds the
    old file or the new one. On any error nothing is left behind.

    Raises:
        GrassError: The folder cannot be written, or the disk is full.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise GrassError(f"The file {path} cannot be written: {reason}.") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process had not finished writing in a folder that is ours alone."""
    for temporary in folder.rglob(".*.tmp"):
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in one piece."""
    with write_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write a JSON file in one piece."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: str | Path) -> Any:
    """Read a JSON file; a missing or damaged one is a clear error."""
    try:
        return json.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise GrassError(f"There is no file {path}.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise GrassError(f"The file {path} is damaged: {error}.") from None


def cache_folder() -> Path:
    """Where downloads, packed datasets and compiled code go: $GRASS_CACHE, or the user's cache."""
    if chosen := os.environ.get("GRASS_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grass-gnn"


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def sync_folder(folder: Path) -> None:
    """Make a new name in a folder durable; not every file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grass_gnn.errors import GrassError


@contextlib.contextmanager
def write_whole(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside ``path`` to write to, then move it there in one piece.

    The bytes are on disk before the name is: a reader, or a machine that lost its power, finds the
    old file or the new one. On any error nothing is left behind; what a killed process left is
    removed by the next one that writes to the folder.

    Raises:
        GrassError: The folder cannot be written, or the disk is full.
    """
    target = Path(os.path.realpath(path))  # where a link points: the link itself stays
    temporary = None
    try:
        if target.exists() and not target.is_file():
            raise GrassError(f"{path} cannot be written: it is not a file.")
        make_folder(target.parent)
        _remove_abandoned(target.parent)
        beginning = f".{target.name[:60]}{_own_mark()}-"
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=beginning, suffix=".tmp")
        os.close(handle)
        temporary = Path(name)
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        move_whole(temporary, target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise GrassError(f"The file {path} cannot be written: {reason}.") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def move_whole(source: Path, target: Path) -> None:
    """Give a finished file or folder its name, once all of it is on disk."""
    for path in [*source.rglob("*"), source] if source.is_dir() else [source]:
        if path.is_dir():
            sync_folder(path)
        else:
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
    os.replace(source, target)
    sync_folder(target.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, durably."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in missing:
        sync_folder(one.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process had not finished writing in a folder that is ours alone."""
    for temporary in folder.rglob(".*.tmp"):
        with contextlib.suppress(OSError):
            temporary.unlink()


_tidied: set[Path] = set()


def _remove_abandoned(folder: Path) -> None:
    """Remove unfinished files of processes of this machine that are no more; once a folder."""
    if folder in _tidied:
        return
    _tidied.add(folder)
    for entry in os.scandir(folder):
        found = re.fullmatch(r"\..*\.([^.]+)-(\d+)-\w+\.tmp", entry.name)
        if found and found[1] == _host() and not is_running(int(found[2])):
            with contextlib.suppress(OSError):
                os.unlink(entry.path)


def _own_mark() -> str:
    return f".{_host()}-{os.getpid()}"


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "", socket.gethostname())[:40]


def is_running(pid: int) -> bool:
    """Whether there is a process of this number on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


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
    """Make new names in a folder durable; not every file system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise

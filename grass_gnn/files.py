"""Reading and writing the files of run folders.

Files are written completely or not at all. Files that are read are untrusted: only regular files up
to a given size are opened, and they are read once.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import stat
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grass_gnn.errors import GrassError, RunError, first_line

LARGEST_TEXT = 64 << 20  # bytes of a JSON or CSV file of a run folder
LARGEST_TOML = 1 << 20  # bytes; parsing takes a hundred times as much memory
_MOST_KEY_PARTS = 100  # in one line of a TOML file


@contextlib.contextmanager
def write_whole(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path next to ``path``, and rename it to ``path`` at the end.

    The bytes are on disk before the file is renamed, so readers find either the old file or the new
    one, even after a power failure. Errors leave no temporary file behind; those of killed
    processes are removed by the next process that writes to the folder.

    Raises:
        GrassError: The folder cannot be written, or the disk is full.
    """
    target = Path(os.path.realpath(path))  # links are followed, not replaced
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
    """Rename a finished file or folder once all of it is on disk."""
    for path in [*source.rglob("*"), source] if source.is_dir() else [source]:
        if path.is_dir():
            sync_folder(path)
        else:
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
    os.replace(source, target)
    sync_folder(target.parent)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, and wait until they are on disk."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in missing:
        sync_folder(one.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed processes from a folder that this process has locked."""
    for temporary in folder.rglob(".*.tmp"):
        with contextlib.suppress(OSError):
            temporary.unlink()


_tidied: set[Path] = set()


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary files of processes of this machine that have ended; once per folder."""
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
    """Whether a process with this id is running on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, completely or not at all."""
    with write_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write a JSON file, completely or not at all."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_bytes(path: str | Path, limit: int) -> bytes:
    """Read an untrusted file at once.

    Args:
        path: The file; links are followed.
        limit: Largest size in bytes.

    Raises:
        RunError: There is no such file, it is not a regular file (but a device or a named pipe,
            which may never end), it is too large, or it cannot be read.
    """
    try:
        # Opening a named pipe would otherwise wait for a writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise RunError(f"{path} is not a regular file.")
            if status.st_size > limit:
                raise RunError(
                    f"The file {path} has {status.st_size:,} bytes, more than {limit:,}."
                )
            return file.read(status.st_size)
    except FileNotFoundError:
        raise RunError(f"There is no file {path}.") from None
    except OSError as error:
        raise RunError(
            f"The file {path} cannot be read: {error.strerror or first_line(error)}."
        ) from None


def read_text(path: str | Path, limit: int = LARGEST_TEXT) -> str:
    """Read an untrusted text file; see :func:`read_bytes`."""
    try:
        return read_bytes(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise RunError(f"The file {path} is damaged: {error}.") from None


def read_json(path: str | Path, limit: int = LARGEST_TEXT) -> Any:
    """Read an untrusted JSON file; see :func:`read_bytes`."""
    text = read_text(path, limit)
    try:
        value = json.loads(text)
        if re.search(r"\\u[dD][89a-fA-F]", text):  # half a surrogate pair cannot be written
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value
    except RecursionError:
        raise RunError(f"The file {path} is damaged: it is nested too deeply.") from None
    except ValueError as error:  # also numbers of thousands of digits
        raise RunError(f"The file {path} is damaged: {first_line(error)}.") from None


def read_toml(path: str | Path, limit: int = LARGEST_TOML) -> dict[str, Any]:
    """Read an untrusted TOML file; see :func:`read_bytes`."""
    text = read_text(path, limit)
    # Dotted keys take time quadratic in their parts. A list of numbers has as many commas as dots.
    if any(line.count(".") - line.count(",") > _MOST_KEY_PARTS for line in text.splitlines()):
        raise RunError(f"The file {path} is damaged: it is nested too deeply.")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise RunError(f"The file {path} is damaged: it is nested too deeply.") from None
    except ValueError as error:
        raise RunError(f"The file {path} cannot be read: {first_line(error)}.") from None


def cache_folder() -> Path:
    """Folder for downloads, packed datasets and compiled code: $GRASS_CACHE, or ~/.cache."""
    if chosen := os.environ.get("GRASS_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grass-gnn"


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def sync_folder(folder: Path) -> None:
    """Wait until new file names in a folder are on disk, if the file system supports that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise

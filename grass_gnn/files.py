"""Files and folders: writing, reading and locking them.

Files are written completely or not at all. Files that are read are untrusted: only regular files up
to a given size are opened, and they are read once.

One process at a time uses a folder that it has locked, and others are told which one. The operating
system holds the lock (``filelock``) and releases it when the process ends, however it ends. The
lock file contains its owner: process, machine and time. A lock file of another machine is never
taken over, because not every network file system passes locks on between machines.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import threading
import tomllib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grass_gnn.errors import GrassError, RunError, first_line

if TYPE_CHECKING:
    import numpy as np

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


def read_checked(path: str | Path, limit: int, checksum: object) -> bytes:
    """Read an untrusted file whose SHA-256 checksum is known; see :func:`read_bytes`.

    Raises:
        RunError: The file cannot be read, or its checksum differs.
    """
    data = read_bytes(path, limit)
    if hashlib.sha256(data).hexdigest() != checksum:
        raise RunError(f"The file {path} is damaged: its checksum differs.")
    return data


def select_arrays(
    arrays: Mapping[str, np.ndarray], kinds: Mapping[str, tuple[type, int]]
) -> dict[str, np.ndarray]:
    """The arrays of an untrusted file with these names, of these types and numbers of dimensions.

    Raises:
        LookupError: An array is missing.
        ValueError: An array has another type or number of dimensions.
    """
    for name, (kind, dimensions) in kinds.items():
        if arrays[name].dtype != kind or arrays[name].ndim != dimensions:
            raise ValueError(f"{name} has the wrong type")
    return {name: arrays[name] for name in kinds}


def write_checked(path: str | Path, data: bytes) -> str:
    """Write a file, completely or not at all; returns its checksum for :func:`read_checked`."""
    with write_whole(path) as temporary:
        temporary.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


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


LOCK = "run.lock"
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_held: dict[tuple[Path, int], FolderLock] = {}  # by folder and thread of this process


@contextlib.contextmanager
def locked(folder: str | Path) -> Iterator[FolderLock]:
    """Lock a folder, which is created if necessary.

    A thread that already holds the lock gets the same one again.

    Raises:
        RunError: Another process holds it (the message says which), or it cannot be written.
    """
    key = Path(folder).resolve(), threading.get_ident()
    if key in _held:
        yield _held[key]
        return
    lock = _held[key] = FolderLock(Path(folder))
    try:
        yield lock
    finally:
        del _held[key]
        lock.release()


def is_locked_here(folder: str | Path) -> bool:
    """Whether this thread holds the lock of a folder."""
    return (Path(folder).resolve(), threading.get_ident()) in _held


class FolderLock:
    """A lock that is held on a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / LOCK
        self._made = not folder.exists()
        try:
            make_folder(folder)
            self.handle = self._open()
            stamp(self.handle)
        except OSError as error:
            reason = error.strerror or str(error)
            raise RunError(f"The folder {folder} cannot be written: {reason}.") from error

    def _open(self) -> int:
        while True:
            handle = open_lock(self.path)
            taken, owner = try_lock(handle), read_owner(handle)
            if taken is False or (taken is None and _is_alive(owner)):
                os.close(handle)
                raise RunError(
                    f"{self.folder} is in use by {describe(owner)}: "
                    "wait until it has ended, or choose another folder (--out)."
                )
            if owner.get("host", socket.gethostname()) != socket.gethostname():
                os.close(handle)
                raise RunError(
                    f"{self.folder} was locked by {describe(owner)}: "
                    f"if it has ended, remove {self.path} and try again."
                )
            if self._is_current(handle):
                return handle
            os.close(handle)  # its previous owner has just removed the file

    def _is_current(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        except OSError:
            return False

    def check(self) -> None:
        """Raise if the folder was removed, replaced or unmounted since it was locked."""
        if not self._is_current(self.handle):
            raise RunError(
                f"The folder {self.folder} disappeared while it was in use: "
                "restore it and use --resume."
            )

    def empty(self) -> None:
        """Remove everything in the folder except the lock."""
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path != self.path:
                path.unlink(missing_ok=True)

    def release(self) -> None:
        """Release the lock."""
        with contextlib.suppress(OSError):
            if self._is_current(self.handle):
                os.unlink(self.path)
        os.close(self.handle)
        if self._made:
            with contextlib.suppress(OSError):  # fails unless the folder is empty
                self.folder.rmdir()


def open_lock(path: Path) -> int:
    """Open or create a lock file. Links are not followed: the file will be overwritten."""
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)


def try_lock(handle: int) -> bool | None:
    """Lock an open file without waiting.

    Returns:
        Whether the file was free; None if the file system does not support locks.
    """
    from filelock import lock_descriptor

    try:
        return lock_descriptor(handle, blocking=False)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise


def wait_for_lock(handle: int) -> None:
    """Lock an open file as soon as its owner releases it."""
    from filelock import lock_descriptor

    lock_descriptor(handle)


def stamp(handle: int) -> None:
    """Write this process into a lock file as its owner."""
    now = datetime.now().isoformat(" ", "seconds")
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": now}
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(owner).encode(), 0)


def read_owner(handle: int) -> dict[str, Any]:
    """The current or previous owner of a lock file; empty if unknown."""
    try:
        owner = json.loads(os.pread(handle, 4096, 0))
        return {"pid": int(owner["pid"]), "host": owner["host"], "started": owner["started"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def describe(owner: dict[str, Any]) -> str:
    """The owner of a lock, for a message."""
    if not owner:
        return "another process"
    return f"process {owner['pid']} on {owner['host']} (since {owner['started']})"


def _is_alive(owner: dict[str, Any]) -> bool:
    """Whether the owner is a running process of this machine."""
    return owner.get("host") == socket.gethostname() and is_running(owner["pid"])


def _forget() -> None:
    """Close the locks in a forked process: they must be released when its parent ends."""
    for lock in _held.values():
        os.close(lock.handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

"""Folder locks: one process at a time uses a folder, and others are told which one.

The operating system holds the lock (``filelock``) and releases it when the process ends, however it
ends. The lock file contains its owner: process, machine and time. A lock file of another machine is
never taken over, because not every network file system passes locks on between machines.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import lock_descriptor

from grass_gnn.errors import RunError
from grass_gnn.files import is_running, make_folder

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
    try:
        return lock_descriptor(handle, blocking=False)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise


def wait_for_lock(handle: int) -> None:
    """Lock an open file as soon as its owner releases it."""
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

"""One process at a time in a folder: a lock that names its owner, and ends with it.

The kernel holds the lock (``flock``) and lets go of it when the process ends, however it ends. The
file itself says who has it: process, machine and start. What another machine left is never taken
over, because not every network file system carries locks from one machine to the next.
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

from grass_gnn.errors import GrassError
from grass_gnn.files import is_running, make_folder

try:
    import fcntl
except ImportError:  # Windows: what the file says has to do
    fcntl = None  # type: ignore[assignment]

LOCK = "run.lock"
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_held: dict[tuple[Path, int], FolderLock] = {}  # by folder and thread of this process


@contextlib.contextmanager
def locked(folder: str | Path) -> Iterator[FolderLock]:
    """Have a folder to oneself; it is made if it is not there.

    A thread that has the lock already gets the same one again.

    Raises:
        GrassError: Another process has it (the message says which), or it cannot be written.
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
    """The lock of a folder, as long as it is held."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / LOCK
        self._made = not folder.exists()
        try:
            make_folder(folder)
            self.handle = self._open()
            stamp(self.handle)
        except OSError as error:
            reason = error.strerror or str(error)
            raise GrassError(f"The folder {folder} cannot be written: {reason}.") from error

    def _open(self) -> int:
        while True:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            taken, owner = try_lock(handle), read_owner(handle)
            if taken is False or (taken is None and _is_alive(owner)):
                os.close(handle)
                raise GrassError(
                    f"{self.folder} is in use by {describe(owner)}: "
                    "wait until that has ended, or choose another folder (--out)."
                )
            if owner.get("host", socket.gethostname()) != socket.gethostname():
                os.close(handle)
                raise GrassError(
                    f"{self.folder} was locked by {describe(owner)}: "
                    f"if that has ended, remove {self.path} and try again."
                )
            if self._is_current(handle):
                return handle
            os.close(handle)  # its last owner has just removed it

    def _is_current(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        except OSError:
            return False

    def check(self) -> None:
        """Raise if the folder is not the one that was locked: removed, replaced or unmounted."""
        if not self._is_current(self.handle):
            raise GrassError(
                f"The folder {self.folder} has vanished while it was in use: "
                "bring it back and go on with --resume."
            )

    def empty(self) -> None:
        """Remove all that is in the folder, but for the lock."""
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path != self.path:
                path.unlink(missing_ok=True)

    def release(self) -> None:
        """Let others in."""
        with contextlib.suppress(OSError):
            if self._is_current(self.handle):
                os.unlink(self.path)
        os.close(self.handle)
        if self._made:
            with contextlib.suppress(OSError):  # nothing was written after all
                self.folder.rmdir()


def try_lock(handle: int) -> bool | None:
    """Lock an open file without waiting: whether that was possible; None where locks are not."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise
    return True


def wait_for_lock(handle: int) -> None:
    """Lock an open file as soon as its owner lets go of it."""
    assert fcntl is not None
    fcntl.flock(handle, fcntl.LOCK_EX)


def stamp(handle: int) -> None:
    """Write into a lock file who has it."""
    now = datetime.now().isoformat(" ", "seconds")
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": now}
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(owner).encode(), 0)


def read_owner(handle: int) -> dict[str, Any]:
    """Who has a lock file, or had it last; empty if that is not known."""
    try:
        owner = json.loads(os.pread(handle, 4096, 0))
        return {"pid": int(owner["pid"]), "host": owner["host"], "started": owner["started"]}
    except (ValueError, KeyError, TypeError):
        return {}


def describe(owner: dict[str, Any]) -> str:
    """The owner of a lock, as part of a sentence."""
    if not owner:
        return "another process"
    return f"process {owner['pid']} on {owner['host']} (since {owner['started']})"


def _is_alive(owner: dict[str, Any]) -> bool:
    """Whether the owner that a file names is a running process of this machine."""
    return owner.get("host") == socket.gethostname() and is_running(owner["pid"])


def _forget() -> None:
    """A forked process holds nothing: its parent's end must set the folder free."""
    for lock in _held.values():
        os.close(lock.handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

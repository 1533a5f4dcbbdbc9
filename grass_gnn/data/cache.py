"""A cache whose entries appear whole, are checked when read, and are built once.

An entry is a folder of files with a manifest that holds their checksums. It is built under another
name and then moved into place, so that no reader ever meets half of one, whatever happens.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grass_gnn.errors import GrassError
from grass_gnn.files import move_whole, read_json
from grass_gnn.locks import describe, read_owner, stamp, try_lock, wait_for_lock

FORMAT_VERSION = 1  # of the files; an entry of another version is built anew
_MANIFEST = "manifest.json"
_CHUNK = 1 << 24  # bytes hashed at a time

logger = logging.getLogger(__name__)


class DamagedError(Exception):
    """An entry of the cache cannot be used; the message ends a sentence about it."""


class CacheEntry:
    """One entry of the cache, there or not.

    Args:
        root: Folder of the cache.
        name: Name of the entry.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name
        self.folder = root / name
        self._alone = False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from building this entry; a killed process lets go of it.

        Where the file system has no locks, two builders do the same work, and one's stays.
        """
        with _one_sentence(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / f".{self.name}.lock").open("ab+")
        with lock:
            with _one_sentence(self.root):
                self._alone = self._wait(lock.fileno())
                stamp(lock.fileno())
            yield

    def _wait(self, lock: int) -> bool:
        """Wait for whoever is building the entry; whether nobody else can be doing so now."""
        taken = try_lock(lock)
        if taken is False:
            owner = describe(read_owner(lock))
            logger.warning("Waiting for %s, which prepares the same data.", owner)
            wait_for_lock(lock)
        return taken is not None

    def manifest(self) -> dict[str, Any] | None:
        """The manifest, after all files were checked; none if there is no such entry.

        Raises:
            DamagedError: There is one, but it is damaged or of another version.
        """
        if not self.folder.exists():
            return None
        try:
            manifest = read_json(self.folder / _MANIFEST)
            version = manifest["version"]
            files = [(name, size, sum_) for name, (size, sum_) in manifest["files"].items()]
        except (GrassError, KeyError, TypeError, ValueError, AttributeError):
            raise DamagedError("has no readable manifest") from None
        if version != FORMAT_VERSION:
            raise DamagedError(f"has format {version!r} and not {FORMAT_VERSION}")
        for name, size, digest in files:
            path = self.folder / name
            try:
                own = path.parent == self.folder and path.is_file()  # no device without an end
                whole = own and path.stat().st_size == size and hash_files([path]) == digest
            except (OSError, ValueError):
                whole = False
            if not whole:
                raise DamagedError(f"is damaged ({name!r})")
        return manifest

    @contextlib.contextmanager
    def building(self) -> Iterator[Path]:
        """Give a folder to write files to; :meth:`publish` makes it the entry. To be locked."""
        with _one_sentence(self.folder):
            if self._alone:  # what killed builders left
                for left in self.root.glob(f".{self.name}.*.building"):
                    shutil.rmtree(left, ignore_errors=True)
            temporary = self.root / f".{self.name}.{os.getpid()}.building"
            temporary.mkdir()
            try:
                yield temporary
            finally:
                shutil.rmtree(temporary, ignore_errors=True)

    def publish(self, temporary: Path, values: Mapping[str, Any]) -> dict[str, Any]:
        """Move finished files into place, with a manifest of these values and of checksums."""
        files = {}
        for path in sorted(temporary.iterdir()):
            files[path.name] = [path.stat().st_size, hash_files([path])]
        manifest = {**values, "version": FORMAT_VERSION, "files": files}
        (temporary / _MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
        shutil.rmtree(self.folder, ignore_errors=True)  # a damaged one
        move_whole(temporary, self.folder)
        return manifest


def hash_files(paths: list[Path]) -> str:
    """A hash of the bytes of files, in order."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        digest.update(path.stat().st_size.to_bytes(8, "little"))
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


@contextlib.contextmanager
def _one_sentence(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise GrassError(f"Prepared data cannot be written to {place}: {reason}.") from error

"""A cache whose entries appear whole, are checked when read, and are built once.

An entry is a folder of files with a manifest that holds their checksums. It is built under another
name and then moved into place, so that no reader ever meets half of one, whatever happens.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grass_gnn.errors import GrassError
from grass_gnn.files import read_json, sync_folder

try:
    import fcntl
except ImportError:  # Windows: two builders then do the same work, and the first one's stays
    fcntl = None  # type: ignore[assignment]

FORMAT_VERSION = 1  # of the files; an entry of another version is built anew
_MANIFEST = "manifest.json"
_CHUNK = 1 << 24  # bytes hashed at a time


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

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from building this entry; a killed process lets go of it."""
        with _one_sentence(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / f".{self.name}.lock").open("w")
        with lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def manifest(self) -> dict[str, Any] | None:
        """The manifest, after all files were checked; none if there is no such entry.

        Raises:
            DamagedError: There is one, but it is damaged or of another version.
        """
        if not self.folder.exists():
            return None
        try:
            manifest = read_json(self.folder / _MANIFEST)
            version, files = manifest["version"], manifest["files"]
        except (GrassError, KeyError, TypeError):
            raise DamagedError("has no readable manifest") from None
        if version != FORMAT_VERSION:
            raise DamagedError(f"has format {version} and not {FORMAT_VERSION}")
        for name, (size, digest) in files.items():
            path = self.folder / name
            if not path.is_file() or path.stat().st_size != size or hash_files([path]) != digest:
                raise DamagedError(f"is damaged ({name})")
        return manifest

    @contextlib.contextmanager
    def building(self) -> Iterator[Path]:
        """Give a folder to write files to; :meth:`publish` makes it the entry. To be locked."""
        with _one_sentence(self.folder):
            if fcntl is not None:  # what killed builders left
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
            with path.open("rb+") as file:
                os.fsync(file.fileno())
            files[path.name] = [path.stat().st_size, hash_files([path])]
        manifest = {**values, "version": FORMAT_VERSION, "files": files}
        with (temporary / _MANIFEST).open("w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(self.folder, ignore_errors=True)  # a damaged one
        os.replace(temporary, self.folder)
        sync_folder(self.root)
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

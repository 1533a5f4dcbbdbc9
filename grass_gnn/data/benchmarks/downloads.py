"""Files from the network: asked for by name, gone on with after a break, and checked.

A download that breaks off leaves a part, with which the next one goes on if the server's file is
still the same. What arrives is held against its SHA-256. Of an archive only the files that are
expected are taken, by their bare names: where it wants to put them does not matter.
"""

from __future__ import annotations

import hashlib
import lzma
import shutil
import struct
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from grass_gnn.errors import GrassError, first_line
from grass_gnn.files import write_text
from grass_gnn.progress import Progress, silent

LARGEST_FILE = 16 << 30  # bytes of a download, or of a file in an archive: COCO-SP has 5 GB
_TRIES = 5  # in a row without a new byte
_TIMEOUT = 60  # seconds of silence
_CHUNK = 1 << 20
# What a damaged or odd archive leads to. RuntimeError: it is encrypted, or compressed in an unknown
# way; OSError: places that cannot be, or a full disk.
_DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)


class BrokenDownloadError(Exception):
    """A file did not arrive; the message ends a sentence about it."""


@dataclass(frozen=True)
class Source:
    """A file on a server.

    Without a published SHA-256 it is only known by its address: whoever has the server, or the
    maker of the file, is believed as to its numbers (never as to code, see ``data.pickles``).
    """

    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """Bare name of the file."""
        return PurePosixPath(urlsplit(self.url).path).name


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follows a server elsewhere, but never from an encrypted connection to an open one."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, to: str
    ) -> Any:
        if req.full_url.startswith("https:") and not to.startswith("https:"):
            raise urllib.error.URLError("the server sends us to an unencrypted address")
        return super().redirect_request(req, fp, code, msg, headers, to)


def fetch(source: Source, folder: Path, progress: Progress = silent) -> Path:
    """Download a file into a folder, or go on with what an earlier attempt left there.

    Raises:
        BrokenDownloadError: It does not arrive, or is not the file that it should be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target, part = folder / source.name, folder / f"{source.name}.part"
    if not target.is_file():
        tries = 0
        while tries < _TRIES:
            before = part.stat().st_size if part.is_file() else 0
            try:
                if _continue(source, part, progress):
                    break
                problem = "the connection broke off"
            except urllib.error.HTTPError as error:
                if error.code == 416 and before:  # nothing behind this part: it is of another file
                    part.unlink()
                    continue
                raise BrokenDownloadError(f"the server says {error.code} {error.reason}") from error
            except (OSError, HTTPException) as error:
                problem = first_line(error)
            grown = part.is_file() and part.stat().st_size > before
            tries = 0 if grown else tries + 1
        else:
            raise BrokenDownloadError(problem)
        _check(source, part)
        part.replace(target)
        part.with_suffix(".version").unlink(missing_ok=True)
    _check(source, target)
    return target


def _continue(source: Source, part: Path, progress: Progress) -> bool:
    """Append what is missing of a part; whether the file is whole afterwards."""
    version = part.with_suffix(".version")  # how the server tells one state of the file from others
    known = version.read_text("utf-8") if version.is_file() and part.is_file() else ""
    start = part.stat().st_size if known else 0
    request = urllib.request.Request(source.url, headers={"User-Agent": "grass-gnn"})
    if start:
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", known)
    opener = urllib.request.build_opener(_NoDowngrade())
    with opener.open(request, timeout=_TIMEOUT) as answer:
        if answer.status != 206:  # from the start: another state of the file, or no ranges
            start = 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length is not None and length.isdigit() else None
        if (total or 0) > LARGEST_FILE:
            raise BrokenDownloadError(f"{total:,} bytes are more than {LARGEST_FILE:,}")
        write_text(version, _version(answer.headers))
        with part.open("ab" if start else "wb") as file:
            done = start
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                if done > LARGEST_FILE:
                    raise BrokenDownloadError(f"it is larger than {LARGEST_FILE:,} bytes")
                progress(f"Downloading {source.name}", done, total or 0)
    return total is None or done == total


def _version(headers: Any) -> str:
    tag = headers.get("ETag") or ""
    strong = tag if not tag.startswith("W/") else ""  # of a weak one, bytes may differ
    return strong or headers.get("Last-Modified") or ""


def _check(source: Source, path: Path) -> None:
    """Remove a file, and raise, unless it is the one that is meant."""
    if source.sha256 is not None and file_sha256(path) != source.sha256:
        path.unlink()
        raise BrokenDownloadError(
            f"what {urlsplit(source.url).hostname} sent is another file: its checksum differs"
        )


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def take_from_archive(
    archive: Path, names: Sequence[str], folder: Path, largest: int = LARGEST_FILE
) -> None:
    """Unpack the files of these bare names, and nothing else, into a folder.

    Args:
        archive: A zip file.
        names: What is expected in it; folders within the archive do not matter.
        folder: Where the files go.
        largest: Bytes that one of them may have; unpacking stops there, whatever its header says.

    Raises:
        GrassError: One is missing, there more than once or too large, or the archive is damaged.
    """
    try:
        with zipfile.ZipFile(archive) as packed:
            for name in names:
                found = [m for m in packed.infolist() if PurePosixPath(m.filename).name == name]
                found = [member for member in found if not member.is_dir()]
                if len(found) != 1:
                    how_often = "no" if not found else "more than one"
                    raise GrassError(f"The archive {archive} holds {how_often} {name}.")
                with packed.open(found[0]) as source, (folder / name).open("xb") as target:
                    shutil.copyfileobj(_Limited(source, largest, name), target, _CHUNK)
    except _DAMAGES as error:
        raise GrassError(
            f"The archive {archive} cannot be unpacked: {first_line(error)}."
        ) from None


class _Limited:
    """A file that may not be longer than it should."""

    def __init__(self, file: Any, largest: int, name: str) -> None:
        self.file, self.left, self.name = file, largest, name

    def read(self, size: int = -1) -> bytes:
        data: bytes = self.file.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise GrassError(f"The file {self.name} in an archive is too large to be what it says.")
        return data
